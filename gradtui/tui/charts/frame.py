"""The frame around a drawing, for every drawer: the header with title and legend, and the name of the x axis. UI thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size

from gradtui.tui.charts.chart import GLYPHS, MARK_NAMES, Chart, MarkKind
from gradtui.tui.charts.layout import LABEL_WIDTH
from gradtui.tui.charts.request import ALARM, LEGEND, PLAIN, TICK, TITLE, Line, Picture, PlotRequest, Run, Source

_GAP = 2
_LINE_SAMPLE = "──"
_MARKS_IN_LEGEND: tuple[MarkKind, ...] = ("nan", "inf", "-inf", "nonpositive")


def compose(request: PlotRequest, chart: Chart, body: Sequence[Line], source: Source) -> Picture:
    """Return the whole picture from the lines that a drawer made of the chart."""
    lines = list(body)
    if chart.layout.framed:
        name = fitted(request.x_label, LABEL_WIDTH)
        lines[-1] = (
            (" " * (LABEL_WIDTH - cell_len(name)) + name + " ", TICK),
            *without_start(lines[-1], LABEL_WIDTH + 1),
        )
    if chart.layout.header:
        lines.insert(0, header(request, chart))
    return Picture(max(request.width, 0), max(request.height, 0), tuple(lines), source)


def header(request: PlotRequest, chart: Chart) -> Line:
    """Return the title on the left and the legend on the right: the entries that fit, and the number of those that do not."""
    width = max(request.width, 0)
    entries = list(_legend(request, chart))
    title = fitted(request.title, width if not entries else max(width // 2, width - _GAP - _width(entries)))
    room = width - cell_len(title) - (_GAP if title else 0)
    shown = _fitting(entries, room)
    blank = width - cell_len(title) - _width(shown)
    return tuple(run for run in ((title, TITLE), (" " * blank, PLAIN), *_joined(shown)) if run[0])


def fitted(text: str, width: int) -> str:
    """Return `text` as one line of at most `width` cells without control characters; an ellipsis replaces what was cut."""
    plain = "".join(character if character.isprintable() else " " for character in text)
    if cell_len(plain) <= width:
        return plain
    return set_cell_size(plain, width - 1).rstrip() + "…" if width > 0 else ""


def without_start(line: Line, count: int) -> Line:
    """Return a line without its first `count` characters, which must be one cell wide each."""
    runs = []
    for text, key in line:
        if len(text) > count:
            runs.append((text[count:], key))
        count = max(count - len(text), 0)
    return tuple(runs)


_Entry = tuple[Run, ...]


def _legend(request: PlotRequest, chart: Chart) -> Iterator[_Entry]:
    for series in request.series:
        if series.label:
            yield (_LINE_SAMPLE, series.color), (" " + fitted(series.label, max(request.width, 0)), LEGEND)
    present = {mark.kind: mark.color for mark in chart.marks}
    for kind in _MARKS_IN_LEGEND:
        if kind in present:
            yield (GLYPHS[kind], present[kind] if kind == "nonpositive" else ALARM), (" " + MARK_NAMES[kind], LEGEND)


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
    return sum(cell_len(text) for entry in entries for text, _ in entry) + _GAP * max(len(entries) - 1, 0)
