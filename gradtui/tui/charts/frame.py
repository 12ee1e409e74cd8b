"""The frame around a drawing, for every drawer: the legend, and the name of the x axis. UI thread."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.tui.charts.chart import LABEL_WIDTH, Chart
from gradtui.tui.charts.request import LEGEND, PLAIN, TICK, Line, Picture, PlotRequest, Run, Source

_GAP: Run = ("  ", PLAIN)
_LINE_SAMPLE = "──"


def compose(request: PlotRequest, chart: Chart, body: Sequence[Line], source: Source) -> Picture:
    """Return the whole picture from the lines that a drawer made of the chart."""
    lines = list(body)
    if chart.layout.framed:
        name = request.x_label.rjust(LABEL_WIDTH) + " "
        lines[-1] = ((name, TICK), *without_start(lines[-1], len(name)))
    if chart.layout.header:
        lines.insert(0, legend(request))
    return Picture(tuple(lines), source)


def legend(request: PlotRequest) -> Line:
    """Return the legend, aligned right: the entries that fit, and the number of those that do not."""
    width = max(request.width, 0)
    named = [series for series in request.series if series.label]
    for count in range(len(named), 0, -1):
        entries = [[(_LINE_SAMPLE, series.color), (f" {series.label}", LEGEND)] for series in named[:count]]
        if count < len(named):
            entries.append([(f"+{len(named) - count}", LEGEND)])
        runs = [run for entry in entries for run in (_GAP, *entry)][1:]
        blank = width - sum(len(text) for text, _ in runs)
        if blank >= 0:
            return ((" " * blank, PLAIN), *runs)
    return ((" " * width, PLAIN),)


def without_start(line: Line, count: int) -> Line:
    """Return a line without its first `count` characters, which must be one cell wide each."""
    runs = []
    for text, key in line:
        if len(text) > count:
            runs.append((text[count:], key))
        count = max(count - len(text), 0)
    return tuple(runs)
