"""What every drawer's drawing gets: the legend, vertical lines behind the curves, and the name of the x axis. UI thread."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.tui.charts.braille import Cell, runs
from gradtui.tui.charts.chart import LABEL_WIDTH, Chart, Vertical
from gradtui.tui.charts.request import AXIS, LEGEND, PLAIN, TICK, Line, Picture, PlotRequest, Run, Source

_GAP: Run = ("  ", PLAIN)
_LINE_SAMPLE = "──"
_DASH = "┊"
_COLUMNS_A_LINE = 4
"""Where fewer columns than this are free for each vertical line, only the characters at their tops are drawn."""
_MIN_LABEL = 5


def compose(request: PlotRequest, chart: Chart, body: Sequence[Line], source: Source) -> Picture:
    """Return the whole picture from the lines that a drawer made of the chart."""
    lines = list(body)
    _draw_verticals(lines, chart)
    if chart.layout.framed:
        name = request.x_label.rjust(LABEL_WIDTH) + " "
        lines[-1] = ((name, TICK), *without_start(lines[-1], len(name)))
    if chart.layout.header:
        lines.insert(0, _header(request, chart.layout.labels))
    return Picture(tuple(lines), source)


def _header(request: PlotRequest, labels: int) -> Line:
    """Return the name of the y axis above its labels, and the legend."""
    name = request.y_label.rjust(labels)[: max(request.width, 0)] if request.y_label else ""
    return ((name, TICK), *legend(request, len(name))) if name else legend(request)


def legend(request: PlotRequest, taken: int = 0) -> Line:
    """Return the legend, aligned right: the entries that fit, and the number of those that do not.

    The first `taken` cells of its line are not for it.
    """
    width = max(request.width, 0) - taken
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


def _draw_verticals(lines: list[Line], chart: Chart) -> None:
    """Draw the vertical lines where the canvas is empty, their characters over everything."""
    margin, rows, verticals = chart.layout.margin, chart.layout.rows, chart.verticals
    if not verticals:
        return
    with_lines = len(verticals) * _COLUMNS_A_LINE <= chart.layout.columns
    for row in range(rows):
        cells: list[Cell] = [(character, key) for text, key in lines[row] for character in text]
        if with_lines:
            for vertical in verticals:
                if cells[margin + vertical.column][0] == " ":
                    cells[margin + vertical.column] = (_DASH, AXIS)
        if row == 0:
            _draw_tops(cells, margin, verticals)
        lines[row] = runs(cells)


def _draw_tops(cells: list[Cell], margin: int, verticals: Sequence[Vertical]) -> None:
    for vertical in verticals:
        cells[margin + vertical.column] = (vertical.glyph, vertical.color)
    for vertical in verticals:
        start = margin + vertical.column + 1
        free = next((i for i, (character, _) in enumerate(cells[start:]) if character != " "), len(cells) - start)
        # One cell stays free before the next line or curve.
        room = free - (start + free < len(cells)) - 1
        forms = (f"{vertical.kind} {vertical.label}".strip(), vertical.label)
        label = next((form for form in forms if len(form) <= room), f"…{vertical.label[1 - room :]}")
        if forms[0] and room >= min(_MIN_LABEL, len(vertical.label)):
            cells[start + 1 : start + 1 + len(label)] = [(character, LEGEND) for character in label]


def without_start(line: Line, count: int) -> Line:
    """Return a line without its first `count` characters, which must be one cell wide each."""
    runs = []
    for text, key in line:
        if len(text) > count:
            runs.append((text[count:], key))
        count = max(count - len(text), 0)
    return tuple(runs)
