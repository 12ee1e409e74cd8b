"""Limits, ticks and tick labels of the axes. Pure.

Limits are rounded outwards to round numbers, so that they rarely change while a curve grows. Every function takes finite
numbers of at most 1e100 in magnitude. It returns limits that differ, with at least one tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil, floor, log10

from gradtui.dataclass import dataclass
from gradtui.system.byte_units import UNITS
from gradtui.tui.charts.chart import LABEL_WIDTH
from gradtui.tui.charts.request import Unit

MAX = 1e100
"""Values are clamped to this magnitude, and smaller ones than its inverse count as zero."""

_ROWS_PER_TICK = 2.5
_MAX_TICKS = 10
_MIN_ROWS_BETWEEN, _MIN_COLUMNS_BETWEEN = 2, 6
_ROUNDING = 1e-9
_MIN_RELATIVE_SPAN = 0.02
"""A narrower range is widened, because labels of `LABEL_WIDTH` cells could not distinguish its ticks."""

_MIN_RELATIVE_STEPS = 1e-14
_MANTISSAS = (tuple(range(1, 10)), (1, 2, 5), (1, 3), (1,))
_PLAIN_EXPONENT = 3
"""Powers of ten up to this exponent, and down to its negative, are labelled as plain numbers: 0.001, 500."""
_DECADE_STRIDES = (1, 2, 5, 10, 20, 50, 100)
_PLAIN_LENGTH, _PLAIN_SIZE = 5, 10_000
"""Plain numbers up to this length and below this size are preferred to numbers with a suffix."""

_SI = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))


_Power = tuple[int, int]
"""A mantissa of 1 to 9 and an exponent of ten."""


@dataclass(frozen=True)
class Tick:
    """A position on an axis, in the axis' own numbers (on a log axis: exponents of ten), and its label."""

    value: float
    label: str


@dataclass(frozen=True)
class Axis:
    """The range of an axis from `lower` to `upper`, which differ, and its ticks, ascending."""

    lower: float
    upper: float
    ticks: tuple[Tick, ...]


def linear_axis(
    low: float, high: float, rows: int, unit: Unit = "", from_zero: bool = False, width: int = LABEL_WIDTH
) -> Axis:
    """Return a y axis over `rows` rows for values from `low` to `high`; with `from_zero` it includes zero.

    Its labels have at most `width` cells, if that is possible.
    """
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    low, high = opened(low, high)
    name, size = fixed_unit(unit, max(abs(low), abs(high)))
    low, high = low / size, high / size
    spacing = max(min(_ROWS_PER_TICK, rows / 2), rows / _MAX_TICKS)
    for step in _round_steps((high - low) * spacing / rows):
        half = step / 2
        lower = floor(low / half + _ROUNDING) * half
        upper = ceil(high / half - _ROUNDING) * half
        if step * rows >= (upper - lower) * spacing:
            break
    values = [i * step for i in range(ceil(lower / step - _ROUNDING), floor(upper / step + _ROUNDING) + 1)]
    labels = unit_labels(values, step, name, width) if name else number_labels(values, step, width)
    ticks = tuple(Tick(value * size, label) for value, label in zip(values, labels))
    return Axis(lower * size, upper * size, _distinct(ticks))


def log_axis(low: float, high: float, rows: int) -> Axis:
    """Return a y axis over `rows` rows for values whose logarithms to base 10 range from `low` to `high`."""
    first, last = _round_down(low), _round_up(high)
    if first == last:
        first, last = _power_before(first), _power_after(last)
    lower, upper = _exponent(first), _exponent(last)
    limits = (_power_tick(first), _power_tick(last))
    for ticks in _power_ticks(lower, upper):
        gaps = [after.value - before.value for before, after in pairwise(ticks)]
        if gaps and min(gaps) * rows >= _MIN_ROWS_BETWEEN * (upper - lower):
            return Axis(lower, upper, ticks)
    # A single tick would say where the axis is, but not its scale.
    return Axis(lower, upper, limits if rows >= _MIN_ROWS_BETWEEN else limits[:1])


def step_axis(low: float, high: float, columns: int) -> Axis:
    """Return an x axis over `columns` columns from exactly `low` to `high`; a single step is placed at its left end."""
    least = max(max(abs(low), abs(high)) * _MIN_RELATIVE_STEPS, 1 / MAX)
    if high - low <= least:
        high = low + max(1.0, 2 * least)
    span = high - low
    for step in _round_steps(max(span * 4 / columns, 1.0 if span >= 1 else 0.0)):
        values = [i * step for i in range(ceil(low / step - _ROUNDING), floor(high / step + _ROUNDING) + 1)]
        labels = number_labels(values, step, max(columns, 1))
        if len(values) <= 1 or (max(map(len, labels)) + _MIN_COLUMNS_BETWEEN) * span <= step * columns:
            break
    if not values:
        values, labels = [low], number_labels([low], span, max(columns, 1))
    return Axis(low, high, _distinct(tuple(Tick(value, label) for value, label in zip(values, labels))))


def opened(low: float, high: float) -> tuple[float, float]:
    """Return limits that are widened until their labels can differ; values that are all close to zero give 0 to 1."""
    largest = max(abs(low), abs(high))
    if largest < 1 / MAX:
        return 0.0, 1.0
    missing = largest * _MIN_RELATIVE_SPAN - (high - low)
    if missing > 0:
        return low - missing / 2, high + missing / 2
    return low, high


def _round_steps(least: float) -> Iterator[float]:
    """Yield 1, 2 or 5 times a power of ten, ascending without end, from the first that is not below `least`."""
    exponent = floor(log10(least) + _ROUNDING)
    while True:
        for mantissa in (1, 2, 5):
            step = float(f"{mantissa}e{exponent}")
            if step >= least * (1 - _ROUNDING):
                yield step
        exponent += 1


def _round_down(exponent: float) -> _Power:
    whole = floor(exponent + _ROUNDING)
    return min(9, max(1, floor(10 ** (exponent - whole) + _ROUNDING))), whole


def _round_up(exponent: float) -> _Power:
    whole = floor(exponent + _ROUNDING)
    mantissa = max(1, ceil(10 ** (exponent - whole) - _ROUNDING * 10))
    return (mantissa, whole) if mantissa < 10 else (1, whole + 1)


def _power_before(power: _Power) -> _Power:
    mantissa, exponent = power
    return (mantissa - 1, exponent) if mantissa > 1 else (9, exponent - 1)


def _power_after(power: _Power) -> _Power:
    mantissa, exponent = power
    return (mantissa + 1, exponent) if mantissa < 9 else (1, exponent + 1)


def _exponent(power: _Power) -> float:
    return power[1] + log10(power[0])


def _power_tick(power: _Power) -> Tick:
    mantissa, exponent = power
    text = f"{mantissa}e{exponent}"
    return Tick(_exponent(power), f"{float(text):g}" if abs(exponent) <= _PLAIN_EXPONENT else text)


def _power_ticks(lower: float, upper: float) -> Iterator[tuple[Tick, ...]]:
    """Yield sets of ticks, from the densest to the sparsest."""
    decades = range(floor(lower - _ROUNDING), ceil(upper + _ROUNDING) + 1)
    if len(decades) <= 12:
        for mantissas in _MANTISSAS:
            yield _inside(lower, upper, [(mantissa, decade) for decade in decades for mantissa in mantissas])
    for stride in _DECADE_STRIDES:
        yield _inside(lower, upper, [(1, decade) for decade in decades if decade % stride == 0])


def _inside(lower: float, upper: float, powers: list[_Power]) -> tuple[Tick, ...]:
    ticks = [_power_tick(power) for power in powers]
    return tuple(tick for tick in ticks if lower - _ROUNDING <= tick.value <= upper + _ROUNDING)


def _distinct(ticks: tuple[Tick, ...]) -> tuple[Tick, ...]:
    return tuple(tick for i, tick in enumerate(ticks) if i == 0 or tick.label != ticks[i - 1].label)


def number_labels(values: Sequence[float], step: float, width: int) -> list[str]:
    """Return labels of evenly spaced `values`, `step` apart: plain, else with an SI suffix, else with an exponent.

    A `width` of 6 (7 with negative numbers) is always enough. If it cannot hold the difference, adjacent labels are equal.
    """
    largest = max(map(abs, values), default=0.0)
    candidates: list[list[str]] = []
    if step >= 1e-6 and largest < 1e15:
        candidates = [_decimal(values, step, size, suffix) for suffix, size in _SI if size == 1 or size <= largest]
        if largest < _PLAIN_SIZE and _longest(candidates[0]) <= min(_PLAIN_LENGTH, width):
            return candidates[0]
    candidates.append(_exponential(values, step, width))
    return min(candidates, key=_longest)


def unit_labels(values: Sequence[float], step: float, unit: str, width: int) -> list[str]:
    """Return labels of evenly spaced `values` in `unit` (such as "MiB"), with a shorter unit if `width` requires it."""
    for suffix in (f" {unit}", unit, unit[:1]):
        labels = _decimal(values, step, 1.0, suffix)
        if _longest(labels) <= width:
            return labels
    return number_labels(values, step, width)


def fixed_unit(unit: Unit, largest: float) -> tuple[str, float]:
    """Return the unit in which y values up to `largest` have at most three digits before the point, and its size.

    For plain numbers, and for more bytes than any unit suits, the name is empty and the size 1.
    """
    sizes = UNITS if unit == "bytes" else ()
    return next(((name, size) for name, size in sizes if largest < 1000 * size), ("", 1.0))


def _decimal(values: Iterable[float], step: float, size: float, suffix: str) -> list[str]:
    decimals = max(0, -floor(log10(step / size) + 1e-9))
    return ["0" if value == 0 else f"{value / size:.{decimals}f}{suffix}" for value in values]


def _exponential(values: Sequence[float], step: float, width: int) -> list[str]:
    largest = max(map(abs, values), default=0.0)
    needed = max(0, floor(log10(largest)) - floor(log10(step) + 1e-9)) if largest > 0 else 0
    for decimals in range(min(needed, width), -1, -1):
        labels = ["0" if value == 0 else _short_exponent(f"{value:.{decimals}e}") for value in values]
        if _longest(labels) <= width:
            return labels
    return labels


def _short_exponent(text: str) -> str:
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}"


def _longest(labels: Sequence[str]) -> int:
    return max(map(len, labels), default=0)
