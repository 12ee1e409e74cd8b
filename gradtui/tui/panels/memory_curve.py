"""Draw the course of memory within a step as a filled area with one colour per phase, an axis, and the peak's mark. Pure.

The width of a phase is its share of the time within a step. Within it, totals are in the order of allocations and frees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import ceil, floor, log10
from operator import itemgetter

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.memory.step_curve import StepCurve
from gradtui.system.byte_units import unit_of
from gradtui.tui.rendering import PHASE_ROLES, STALE, Line, Span, elide_start, phase_role, width_of

SHORT_NAMES = {Phase.FORWARD: "fwd", Phase.BACKWARD: "bwd", Phase.OPTIMIZER: "opt"}
_MIN_SHARE = 0.005
_SIGN_LESS = " %"
"""Stands once, behind the last number, where it has no room behind each."""
_OF_THE_TIME = " of the step"
_LINE = "─"
_HEIGHTS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = 8
_STEPS_OF_SCALE = 5
_FAR_FROM_ZERO = 3
"""Where the lowest value is more than the highest divided by this, the axis begins near it."""
_FROM, _BROKEN = "from", "┊"
"""What says that the axis does not begin at zero."""
_WIDTH_WITH_FROM, _ROWS_WITH_FROM = 44, 3
_MIN_LABEL = 10
_MAX_PARTS = 0.5
"""Of the columns: if a step has more stretches of phases than this, none of them gets a column for certain."""

_MIN_WEIGHT = 1e-9


@dataclass(frozen=True)
class Scale:
    """The range of the axis, in bytes."""

    low: int
    high: int

    def joined(self, other: Scale) -> Scale:
        """Return the range that includes both."""
        return Scale(min(self.low, other.low), max(self.high, other.high))


def scale_for(low: int, high: int) -> Scale:
    """Return a range around `low` to `high` that ends at multiples of 1, 2 or 5 times a power of ten of the unit.

    It begins at zero, except where all values are far from it: differences would hardly be visible.
    """
    size = unit_of(high)[1]
    if low * _FAR_FROM_ZERO < high:
        step = _round_step(high / size / _STEPS_OF_SCALE)
        return Scale(0, round(max(1, ceil(high / size / step - 1e-9)) * step * size))
    step = _round_step(max(high - low, high / 50, size / 1000) / size / _STEPS_OF_SCALE)
    low = round(floor(low / size / step + 1e-9) * step * size)
    return Scale(low, max(low + 1, round(ceil(high / size / step - 1e-9) * step * size)))


def in_unit(size: int, unit: int) -> str:
    """Format bytes as a number of units, in 4 cells: `19.2`, ` 4.7`, ` 512`."""
    value = size / unit
    return (f"{value:.1f}" if -9.95 < value < 99.95 else f"{value:.0f}").rjust(4)


def _round_step(least: float) -> float:
    exponent = floor(log10(least) + 1e-9)
    return next(
        step
        for power in (exponent, exponent + 1)
        for mantissa in (1, 2, 5)
        if (step := float(f"{mantissa}e{power}")) >= least * (1 - 1e-9)
    )


@dataclass(frozen=True)
class Column:
    """The highest total in one column of the canvas, and the phase that it is of."""

    total: int
    phase: Phase


def columns_of(step: StepCurve, shares: Mapping[Phase, float], width: int) -> list[Column]:
    """Divide a step into `width` columns: the highest total of each. A column without a total continues the one before."""
    found: dict[int, Column] = {}
    weights = _weights(step, shares, width)
    scale, begin = width / sum(weights), 0.0
    for part, weight in zip(step.parts, weights):
        for index, total in enumerate(part.totals):
            at = min(width - 1, int((begin + weight * index / len(part.totals)) * scale + 1e-9))
            if at not in found or total > found[at].total:
                found[at] = Column(total, part.phase)
        begin += weight
    columns: list[Column] = []
    for at in range(width):
        columns.append(found.get(at, columns[-1] if columns else Column(0, step.parts[0].phase)))
    return columns


def _weights(step: StepCurve, shares: Mapping[Phase, float], width: int) -> list[float]:
    """Return the width of each stretch: its phase's share of the time, divided by number of totals among its stretches."""
    points = {phase: sum(len(part.totals) for part in step.parts if part.phase is phase) for phase in Phase}
    if not any(shares.get(part.phase) for part in step.parts):
        weights = [float(len(part.totals)) for part in step.parts]
    else:
        weights = [shares.get(part.phase, 0.0) * len(part.totals) / points[part.phase] for part in step.parts]
    if len(weights) > width * _MAX_PARTS:
        return [max(weight, _MIN_WEIGHT) for weight in weights]
    least = max(sum(weights) / width, _MIN_WEIGHT)
    return [max(weight, least) for weight in weights]


def curve_lines(
    columns: Sequence[Column],
    owner: Sequence[str],
    scale: Scale,
    baseline: int,
    height: int,
    *,
    is_old: bool = False,
    says_from: bool = False,
) -> list[Line]:
    """Return the area in `height` rows with the axis at its left, and the peak's mark and `owner` above it.

    `baseline` is subtracted from every total. The first form of `owner` that fits is the label, with its mark over the peak. If
    the cells there are not blank, the label gets a row of its own. It is dim if the step is old.
    """
    labels, margin, room = axis_labels(scale), margin_of(scale, says_from=says_from), len(columns)
    peak_at = max(range(room), key=lambda at: columns[at].total)
    rows = height
    levels = _levels(columns, scale, baseline, rows)
    label = _over_peak(levels, peak_at, rows, owner)
    if label is None and height > 2 and room >= _MIN_LABEL:
        rows = height - 1
        levels = _levels(columns, scale, baseline, rows)
        label = _above(peak_at, room, owner)
    roles = [phase_role(column.phase) for column in columns]
    canvas = [_row(roles, levels, row) for row in range(rows - 1, -1, -1)]
    if label is not None:
        start, text = label
        line = canvas.pop(0) if rows == height else [(" ", "")] * room
        for at, letter in enumerate(text, start):
            line[at] = (letter, STALE if is_old else "warning" if letter == "▲" else "text")
        canvas.insert(0, line)
    sides = [""] * len(canvas)
    sides[len(canvas) - rows], sides[-1] = labels[0], labels[1]
    axis = [_axis(side, margin) for side in sides]
    if says_from and not sides[-2]:
        axis[-2] = (_FROM.rjust(margin - 1) + "│", "axis")
    if scale.low > 0:
        axis[-1] = (axis[-1][0][:-1] + _BROKEN, "axis")
    return [(side, *_spans(cells)) for side, cells in zip(axis, canvas)]


def margin_of(scale: Scale, *, says_from: bool = False) -> int:
    """Return the width of the axis with its labels. With `says_from` it has room to say that it does not begin at zero."""
    return max(map(len, (*axis_labels(scale), _FROM if says_from else ""))) + 1


def says_from(scale: Scale, width: int, rows: int) -> bool:
    """Return whether an axis in a panel of this width says that it does not begin at zero. Otherwise its end is dashed only."""
    return scale.low > 0 and width >= _WIDTH_WITH_FROM and rows >= _ROWS_WITH_FROM


def axis_labels(scale: Scale) -> tuple[str, str]:
    """Return the labels of the upper and the lower end of the axis, as numbers of one unit."""
    size = unit_of(scale.high * 999 // 1000)[1]
    return f"{scale.high / size:.4g}", f"{scale.low / size:.4g}"


def _levels(columns: Sequence[Column], scale: Scale, baseline: int, rows: int) -> list[int]:
    full = rows * _EIGHTHS
    span = max(1, scale.high - scale.low)
    return [min(full, max(1, round((column.total - baseline - scale.low) / span * full))) for column in columns]


def _row(roles: Sequence[str], levels: Sequence[int], row: int) -> list[Span]:
    """Return the cells of one row, counted from the lowest."""
    low, high = row * _EIGHTHS, (row + 1) * _EIGHTHS
    return [
        (_HEIGHTS[_EIGHTHS if level >= high else level - low], role) if level > low else (_HEIGHTS[0], "")
        for level, role in zip(levels, roles)
    ]


def _over_peak(levels: Sequence[int], peak_at: int, rows: int, owner: Sequence[str]) -> tuple[int, str] | None:
    """Return the column and the text of a label in the blank cells of the top row; None if the peak's own cell is not blank, or
    the others are few."""
    blank = [level <= (rows - 1) * _EIGHTHS for level in levels]
    if not blank[peak_at]:
        return None
    end = next((at for at in range(peak_at, len(blank)) if not blank[at]), len(blank))
    begin = next((at + 1 for at in range(peak_at, -1, -1) if not blank[at]), 0)
    after, before = end - peak_at, peak_at + 1 - begin
    if after >= width_of(owner[0]) + 2 or (after >= before and after >= _MIN_LABEL):
        return peak_at, "▲ " + _shortened(owner, after - 2)
    if before >= _MIN_LABEL:
        text = _shortened(owner, before - 2) + " ▲"
        return peak_at + 1 - width_of(text), text
    return None


def _above(peak_at: int, room: int, owner: Sequence[str]) -> tuple[int, str]:
    """Return the column and the text of a label in a row of its own, the mark above the peak."""
    after, before = room - peak_at - 2, peak_at - 1
    if after >= width_of(owner[0]) or after >= before:
        return peak_at, "▲ " + _shortened(owner, after)
    text = _shortened(owner, before) + " ▲"
    return peak_at + 1 - width_of(text), text


def _shortened(owner: Sequence[str], width: int) -> str:
    """Return the first form that fits; if none does, the end of the last one."""
    return next((form for form in owner if width_of(form) <= width), elide_start(owner[-1], width))


def _axis(label: str, margin: int) -> Span:
    return label.rjust(margin - 1) + ("┤" if label else "│"), "axis"


def _spans(cells: Sequence[Span]) -> Iterator[Span]:
    for role, group in groupby(cells, key=itemgetter(1)):
        yield "".join([text for text, _ in group]), role


def phase_line(columns: Sequence[Column], shares: Mapping[Phase, float], margin: int, unit: str = "") -> Line:
    """Return the name of each phase below the place where it begins, with its share of a step's time in per cent.

    The unit of the axis stands below it if there is room.
    """
    starts: dict[Phase, int] = {}
    for at, column in enumerate(columns):
        starts.setdefault(column.phase, at)
    own = {phase: at for phase, at in starts.items() if phase in PHASE_ROLES}
    room = len(columns)
    for names, ending in (({}, _OF_THE_TIME), ({}, ""), (SHORT_NAMES, ""), (SHORT_NAMES, _SIGN_LESS)):
        labels = [names.get(phase, phase.value) + _per_cent(shares.get(phase)) for phase in own]
        if ending == _SIGN_LESS:
            labels = [label.removesuffix(_SIGN_LESS) for label in labels]
        widths = [len(label) for label in labels]
        if widths and shares:
            widths[-1] += len(ending)
        if sum(widths) + len(widths) - 1 <= room:
            break
    spans: list[Span] = [((unit if len(unit) < margin else "").rjust(margin - 1) + "└", "axis")]
    used = 0
    for phase, label, at in zip(own, labels, _places([*own.values()], widths, room)):
        spans += [(_filler(at - used), "axis"), (label, phase_role(phase))]
        used = at + len(label)
    return (*spans, (ending if own and shares else "", "muted"))


def _filler(cells: int) -> str:
    return f" {_LINE * (cells - 2)} " if cells > 2 else " " * cells


def _places(starts: Sequence[int], widths: Sequence[int], room: int) -> list[int]:
    """Return the column of each label: where its phase begins, or as close to it as the other labels allow."""
    places: list[int] = []
    end = room
    for start, width in zip(reversed(starts), reversed(widths)):
        places.insert(0, min(start, end - width))
        end = places[0] - 1
    used = 0
    for index, width in enumerate(widths):
        places[index] = max(places[index], used)
        used = places[index] + width + 1
    return places


def _per_cent(share: float | None) -> str:
    return "" if share is None else " <1 %" if share < _MIN_SHARE else f" {round(100 * share)} %"
