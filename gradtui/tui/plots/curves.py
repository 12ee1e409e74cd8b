"""Plots of curves over steps: the visible part, raw and smoothed curves, and the legend. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import ceil, floor, isfinite
from typing import Literal

from gradtui.run.state.over_steps.markers import Marker, model_breaks
from gradtui.run.state.run_state import RunState
from gradtui.run.text import DASH, number_text
from gradtui.tui.charts.request import PlotRequest, Scale, Series
from gradtui.tui.plots.cursor import Reading, read
from gradtui.tui.plots.options import Curve, PlotOptions
from gradtui.tui.plots.run_events import lines_of, parts
from gradtui.tui.plots.table import Table, joined
from gradtui.tui.rendering import Line, Span, elide_start, fit, line_width, printable, width_of, wrap

SAMPLE = "── "
GAP = "   "
LEGEND_LINES = 2
_MIN_NAME = 8
_FULL = 1_024
_MAX_BELOW, _MIN_CHART = 3, 9
MAX_POINTS = 4_096
"""Longer curves are decimated before drawing: drawing 50,000 points would block the screen for 50 ms."""
_PIECES = 1_024
"""More than the dot columns of a terminal with 500 columns."""

NORM_AXIS = "‖grad‖"

Axis = Literal["step", "epoch"]
Value = Callable[[float | None], str]
"""Formats a value for the legend."""


def short(norm: float | None) -> str:
    """Return a norm in few characters."""
    return number_text(norm).strip()


def whole_range(curves: Iterable[Curve]) -> tuple[float, float] | None:
    """Return the first and the last step of any curve; None without curves."""
    ends = [(curve.steps[0], curve.steps[-1]) for curve in curves if len(curve.steps)]
    return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None


def run_range(curves: Iterable[Curve], last: float) -> tuple[float, float] | None:
    """Return the range from the first step of any curve to the place `last`, which may be later than the newest sample."""
    whole = whole_range(curves)
    return (whole[0], max(whole[1], last)) if whole is not None else None


def in_sight(curve: Curve, first: float, last: float) -> Curve:
    """Return the part of a curve between two steps, both included."""
    low, high = bisect_left(curve.steps, first), bisect_right(curve.steps, last)
    return curve.part(slice(low, high))


def series_of(curve: Curve, first: float, last: float, smoothing: float) -> list[Series]:
    """Return the series of a curve: the raw curve, or the faint raw curve and its moving average.

    The average is taken over all points, so that it does not change as the window moves.
    """
    shown = in_sight(curve, first, last)
    if not curve.can_be_smooth or smoothing <= 0:
        return [_series(shown, shown.role)]
    average = in_sight(replace(curve, values=curve.smoothed(smoothing), means=None), first, last)
    return [_series(shown, f"{shown.role}-raw"), _series(average, shown.role)]


def curves_request(
    curves: Sequence[Curve],
    options: PlotOptions,
    ends: tuple[float, float],
    scale: Scale,
    width: int,
    height: int,
    x_label: str = "step",
    y_label: str = "",
    state: RunState | None = None,
    marks: Sequence[Marker] = (),
) -> PlotRequest:
    """Return the request for curves, with the steps between `ends` visible; later curves are drawn on top.

    Curves over the steps of `state` break where other models begin.
    """
    breaks = model_breaks(state) if state is not None else []
    drawn = [
        series_of(curve.part(part), *ends, options.smoothing)
        for curve in curves
        for part in (parts(curve.steps, breaks) if curve.can_be_smooth else (slice(None),))
    ]
    # All raw curves lie below all smoothed curves.
    below = [series for lines in drawn for series in lines[:-1]]
    series = (*below, *(lines[-1] for lines in drawn))
    return PlotRequest(
        width,
        height,
        series,
        y_scale=scale,
        x_label=x_label,
        y_label=y_label,
        x_limits=ends,
        verticals=lines_of(marks, ends),
    )


def legend(
    entries: Sequence[tuple[Curve, str]], width: int, most: int = LEGEND_LINES, opening: Line = (), closing: str = ""
) -> tuple[Line, ...]:
    """Return the curves' names and values in at most `most` lines, between `opening` and `closing`.

    Names are cut if they do not all fit.
    """
    longest = max((width_of(curve.name) for curve, _ in entries), default=0)
    begin = [list(opening)] if opening else []
    ending: list[list[Span]] = [[(closing, "muted")]] if closing else []
    for room in (longest, *(length for length in (40, 28, 20, 14, _MIN_NAME) if length < longest)):
        lines = _lines([*begin, *(_entry(curve, value, room) for curve, value in entries), *ending], width)
        if len(lines) <= most:
            break
    return tuple(fit(line, width) for line in lines[:most])


def legend_of(
    curves: Sequence[Curve],
    ends: tuple[float, float],
    value: Value,
    width: int,
    options: PlotOptions,
    most: int = LEGEND_LINES,
    breaks: Sequence[int] = (),
    axis: Axis = "step",
) -> tuple[Line, ...]:
    """Return the legend with the values at the cursor, else with the newest visible ones, and their step.

    A value of another step has that step beside it: where curves are of different steps, or not every step was measured.
    Averages begin again after the steps `breaks`, as in the picture.
    """
    readings = [read(curve, ends, options.cursor) for curve in curves]
    common = _common_step(readings) if options.cursor is None else options.cursor
    entries = [
        (curve, f"{_value_text(curve, reading, value, options, breaks)}{_own_place(reading, common, axis)}")
        for curve, reading in zip(curves, readings)
    ]
    if options.cursor is not None:
        return legend(entries, width, most, cursor_words(f"{axis} {_place(options.cursor, axis)}"))
    return legend(entries, width, most, closing=f"{axis} {_place(common, axis)}" if common is not None else "")


def lines_below(words: str, role: str, width: int, height: int) -> tuple[Line, ...]:
    """Return what stands below a chart, in at most three lines, and in fewer where they would take the rows of the chart."""
    most = min(_MAX_BELOW, (height - _MIN_CHART) // 3)
    return tuple(fit(line, width) for line in wrap(((words, role),), width)[: max(0, most)]) if words else ()


def cursor_words(words: str) -> Line:
    """Return what the legend begins with while the cursor reads."""
    return (("│ ", "accent@cursor"), (words, "strong@cursor"))


def _value_text(curve: Curve, reading: Reading, value: Value, options: PlotOptions, breaks: Sequence[int]) -> str:
    if reading.value is None:
        return DASH
    text = value(reading.value)
    if options.smoothing <= 0 or not curve.can_be_smooth:
        return text
    end = reading.index + 1
    start = max(part.start for part in parts(curve.steps, breaks) if part.start < end)
    return f"{text} EMA {value(curve.part(slice(start, end)).smoothed(options.smoothing)[-1])}"


def _common_step(readings: Sequence[Reading]) -> float | None:
    known = {reading.at for reading in readings if reading.at is not None}
    return known.pop() if len(known) == 1 else None


def _own_place(reading: Reading, common: float | None, axis: Axis) -> str:
    return "" if reading.at is None or reading.at == common else f" @{_place(reading.at, axis)}"


def _place(at: float, axis: Axis) -> str:
    return f"{round(at):,}" if axis == "step" else f"{at:.2f}"


def table_of(curves: Sequence[Curve], options: PlotOptions) -> Table:
    """Return the visible part of the curves, a row for each step that any of them has kept."""
    whole = whole_range(curves)
    ends = options.window.ends(*whole) if whole is not None else (0.0, 0.0)
    shown = [in_sight(curve, *ends) for curve in curves]
    return joined("optimizer_step", [(curve.name, curve.steps, curve.values) for curve in shown])


def step_note(
    curve: Curve, ends: tuple[float, float], whole: tuple[float, float], options: PlotOptions, scale: Scale
) -> str:
    """Describe the visible part of the run, how many of its steps are kept in `curve`, the scale and the smoothing."""
    parts = [*visible_part(curve, ends, whole), scale]
    if options.smoothing > 0:
        parts.append(f"EMA {options.smoothing:g}")
    return " · ".join(parts)


def visible_part(curve: Curve, ends: tuple[float, float], whole: tuple[float, float]) -> list[str]:
    """Describe the visible part of the run, and how many of its steps are kept in `curve`; empty for all steps."""
    kept = len(in_sight(curve, *ends).steps)
    first, last = ceil(ends[0]), floor(ends[1])
    parts = []
    if ends != whole:
        parts.append(f"steps {first:,}–{last:,} of {round(whole[1]):,}")
    made = (last - first) // max(1, round(curve.stride or 1)) + 1
    if kept < made:
        # A curve of so many steps is full: of each group of older ones it keeps the one that stands out (`state.series`).
        which = ", the older if they stand out" if len(curve.steps) > _FULL else " shown"
        parts.append(f"{kept:,} of {made:,} steps{which}")
    return parts


def _series(curve: Curve, role: str) -> Series:
    steps, values = curve.steps, curve.values
    if len(values) > MAX_POINTS:
        indices = standing_out(values, _PIECES)
        steps, values = [steps[index] for index in indices], [values[index] for index in indices]
    return Series("", role, tuple(map(float, steps)), tuple(values), curve.stride)


def _entry(curve: Curve, value: str, room: int) -> list[Span]:
    name = elide_start(printable(curve.name), room)
    return [(SAMPLE, curve.role), (f"{name} ", "muted"), (value, "text")]


def _lines(entries: Sequence[list[Span]], width: int) -> list[Line]:
    lines: list[list[Span]] = []
    for entry in entries:
        if lines and line_width(lines[-1]) + len(GAP) + line_width(entry) <= width:
            lines[-1] += [(GAP, ""), *entry]
        else:
            lines.append(list(entry))
    return [tuple(line) for line in lines]


def standing_out(values: Sequence[float | None], pieces: int) -> list[int]:
    """Return the indexes, in order, of the points to draw if the curve is divided into at most `pieces` pieces.

    Of each piece these are the lowest and the highest finite value, the lowest positive value, and one None, NaN, Inf and
    -Inf. So every gap and mark stays.
    """
    size = max(1, -(-len(values) // pieces))
    kept: list[int] = []
    for start in range(0, len(values), size):
        piece = values[start : start + size]
        kept += [start + index for index in (_extremes_if_positive(piece) or _extremes(piece))]
    return kept


def _extremes_if_positive(piece: Sequence[float | None]) -> list[int] | None:
    """Return the extremes of a piece if every value is a positive number (checked at the speed of C), else None."""
    try:
        low, high, whole = min(piece), max(piece), sum(piece)  # type: ignore[type-var,arg-type]
    except TypeError:
        return None
    return sorted({piece.index(low), piece.index(high)}) if low > 0 and isfinite(whole) else None  # type: ignore[operator]


def _extremes(piece: Sequence[float | None]) -> list[int]:
    finite = [(value, index) for index, value in enumerate(piece) if value is not None and isfinite(value)]
    positive = [entry for entry in finite if entry[0] > 0]
    others = {str(value): piece.index(value) for value in piece if value is None or not isfinite(value)}
    return sorted({*others.values(), *(end(of)[1] for of in (finite, positive) for end in (min, max) if of)})
