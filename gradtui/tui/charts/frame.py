"""The frame around a drawing, for every drawer: the legend, and the name of the x axis. UI thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtui.tui.charts.chart import LABEL_WIDTH, Chart
from gradtui.tui.charts.request import LEGEND, PLAIN, TICK, Line, Picture, PlotRequest, Run, Source

_GAP = 2
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
    entries: list[_Entry] = [
        ((_LINE_SAMPLE, series.color), (f" {series.label}", LEGEND)) for series in request.series if series.label
    ]
    shown = _fitting(entries, width)
    return ((" " * (width - _width(shown)), PLAIN), *_joined(shown))


def without_start(line: Line, count: int) -> Line:
    """Return a line without its first `count` characters, which must be one cell wide each."""
    runs = []
    for text, key in line:
        if len(text) > count:
            runs.append((text[count:], key))
        count = max(count - len(text), 0)
    return tuple(runs)


_Entry = tuple[Run, ...]


def _fitting(entries: Sequence[_Entry], room: int) -> list[_Entry]:
    if _width(entries) <= room:
        return list(entries)
    for count in range(len(entries) - 1, 0, -1):
        shown = [*entries[:count], ((f"+{len(entries) - count}", LEGEND),)]
        if _width(shown) <= room:
            return shown
    return []


def _joined(entries: Sequence[_Entry]) -> Iterator[Run]:
    for i, entry in enumerate(entries):
        if i:
            yield " " * _GAP, PLAIN
        yield from entry


def _width(entries: Sequence[_Entry]) -> int:
    return sum(len(text) for entry in entries for text, _ in entry) + _GAP * max(len(entries) - 1, 0)
