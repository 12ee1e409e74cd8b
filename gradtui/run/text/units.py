"""Format numbers with units: in sentences, and in a fixed width for columns, which then do not move. Pure.

A function with a width in its description returns that number of cells for any input. Unknown values are a dash, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gradtui.system.byte_units import UNITS

DASH = "–"
"""A value that is not known."""
BYTES_WIDTH = 8
COUNT_WIDTH = 5
NUMBER_WIDTH = 7
RATE_WIDTH = 7
SHARE_WIDTH = 5
MICROSECONDS_WIDTH = 7
SECONDS_WIDTH = 8

_DECIMALS = ((99.95, 0), (9.995, 1), (0.9995, 2), (0.00995, 3))
"""(from this size on, decimals) of numbers as people write them."""

_COUNT_UNITS = ("k", "M", "B", "T", "P", "E")
"""Thousands as in deep learning: 7B is seven thousand million parameters."""

_DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
    "complex64": "c64",
    "complex128": "c128",
    "float8_e4m3fn": "f8e4",
    "float8_e5m2": "f8e5",
}


_SIGNS: dict[str, str] = {"exact": "", "at least": "≥", "at most": "≤", "about": "≈"}


def bounded(bound: str, text: str, gap: str = "") -> str:
    """Return a figure with the sign of what it says of the true one, and `gap` between both."""
    sign = _SIGNS[bound]
    return f"{sign}{gap}{text}" if sign else text


def size_text(size: int, decimals: int = 1) -> str:
    """Format a number of bytes in the largest binary unit that it reaches: `12.3 MiB`; below 1 KiB as a whole number."""
    name, unit = next(unit for unit in reversed(UNITS) if abs(size) >= unit[1] or unit[1] == 1)
    return f"{size / unit:.{decimals}f} {name}" if unit > 1 else f"{size} B"


def plural(number: int, noun: str) -> str:
    """Format a number of things: `1 step`, `2,000 steps`."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Join names, and count those after the first `most`: `a, b, c and 4 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def capitalized(words: str) -> str:
    """Return words with a capital first letter; `str.capitalize` would make all others small."""
    return words[0].upper() + words[1:]


def joined_numbers(names: Iterable[str]) -> list[tuple[str, int]]:
    """Join neighbours that differ by a number at their end, which goes up by one: `blocks.0`, `blocks.1` gives `blocks.0–1`.

    Each comes with the number of names that it stands for. Digits with a leading zero are no number.
    """
    runs: list[tuple[str, str, int]] = []
    """(the first name, what the next one would be, the number of names)."""
    for name in names:
        digits = name[len(name.rstrip("0123456789")) :]
        is_number = bool(digits) and (digits == "0" or digits[0] != "0")
        after = f"{name.removesuffix(digits)}{int(digits) + 1}" if is_number else ""
        if runs and name == runs[-1][1]:
            runs[-1] = runs[-1][0], after, runs[-1][2] + 1
        else:
            runs.append((name, after, 1))
    return [(f"{first}–{_number_before(after)}" if count > 1 else first, count) for first, after, count in runs]


def _number_before(name: str) -> int:
    return int(name[len(name.rstrip("0123456789")) :]) - 1


def bytes_text(size: int | None) -> str:
    """Format bytes with three digits in powers of 1024, 8 cells: `48.1 MiB`. A negative size has a sign and one digit less."""
    if size is None:
        return DASH.rjust(BYTES_WIDTH)
    limit, value, unit = 999.5 if size >= 0 else 99.5, float(min(abs(size), 10**24)), 0
    while value >= limit and unit < len(UNITS) - 1:
        value /= 1024
        unit += 1
    if value >= limit:
        return ("≫ EiB" if size > 0 else "≪ EiB").rjust(BYTES_WIDTH)
    if size >= 0:
        number = f"{value:.0f}" if unit == 0 else three_digits(value)
    else:
        number = f"-{value:.0f}" if unit == 0 or value >= 9.95 else f"-{value:.1f}"
    return f"{number:>4} {UNITS[unit][0]:<3}"


def short_bytes(size: int | None) -> str:
    """Format bytes with three digits, without padding: `48.1 MiB`."""
    return bytes_text(size).strip()


def three_digits(value: float) -> str:
    """Format a number below 1,000 with three digits."""
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def count_text(count: int | None) -> str:
    """Format a count in 5 cells: whole up to 9,999, then three digits and a unit: `12.6M`."""
    if count is None:
        return DASH.rjust(COUNT_WIDTH)
    if 0 <= count < 10_000:
        return f"{count:,}".rjust(COUNT_WIDTH)
    value, unit = float(min(abs(count), 10**30)) / 1000, 0
    limit = 999.5 if count >= 0 else 99.5
    while value >= limit and unit < len(_COUNT_UNITS) - 1:
        value /= 1000
        unit += 1
    if value >= limit:
        return ("≫" if count > 0 else "≪").rjust(COUNT_WIDTH)
    number = three_digits(value) if count >= 0 else f"-{value:.0f}"
    return f"{number}{_COUNT_UNITS[unit]}".rjust(COUNT_WIDTH)


def steps_of(first: int, last: int) -> str:
    """Return `step 11`, or `steps 11–118` where a figure is of several."""
    return f"step {first:,}" if first == last else f"steps {first:,}–{last:,}"


def steps_text(count: int, width: int) -> str:
    """Format a step number, whole if it fits `width` (at least 5) cells."""
    whole = f"{count:,}"
    return whole.rjust(width) if len(whole) <= width else count_text(count).rjust(width)


def number_text(value: float | None) -> str:
    """Format a norm, a loss or another number as people write it, 7 cells: `3.29`, `0.037`, `1.2e-5`.

    It has three significant digits from 0.1 to 1,000, whole thousands up to 99,999, and two digits otherwise.
    """
    if value is None:
        return DASH.rjust(NUMBER_WIDTH)
    return (_not_finite(value) or _digits(value)).rjust(NUMBER_WIDTH)


def _digits(value: float) -> str:
    size = abs(value)
    if size == 0:
        return "0"
    if not 0.00095 <= size < 99_999.5:
        return _scientific(value)
    decimals = next((count for limit, count in _DECIMALS if size >= limit), 4)
    return f"{value:,.{decimals}f}"


def short_rate(rate: float | None) -> str:
    """Format a learning rate in at most 6 cells: `1e-3`, `3.5e-4`, `0.02`."""
    if rate is None:
        return DASH
    if rate == 0 or 0.01 <= rate < 100 or not math.isfinite(rate):
        return f"{rate:.3g}"[:6]
    mantissa, _, exponent = f"{rate:.1e}".partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def rates_text(rates: Sequence[float], width: int) -> str:
    """Format the learning rates of several parameters in a cell: `1e-3`, `1e-5…1e-3`; a dash without any."""
    if not rates:
        return DASH
    if len(rates) == 1:
        return short_rate(rates[0])
    text = f"{short_rate(rates[0])}…{short_rate(rates[-1])}"
    return text if len(text) <= width else "…".join(short_rate(float(f"{rate:.0e}")) for rate in (rates[0], rates[-1]))


def rate_text(per_second: float | None) -> str:
    """Format events per second, 7 cells: `24.1/s`."""
    if per_second is None or not math.isfinite(per_second) or per_second < 0:
        return f"{DASH}/s".rjust(RATE_WIDTH)
    if 0 < per_second < 0.005:
        return "<.01/s".rjust(RATE_WIDTH)
    number = three_digits(per_second) if per_second < 999.5 else count_text(round(per_second)).strip()
    return f"{number}/s".rjust(RATE_WIDTH)


def share_text(share: float | None) -> str:
    """Format a fraction of 1 as per cent, 5 cells: ` 0.8%`."""
    if share is None or not math.isfinite(share) or share < 0:
        return f"{DASH}%".rjust(SHARE_WIDTH)
    if 0 < share < 0.0005:
        return "<0.1%"
    percent = share * 100
    if percent >= 999.5:
        return ">999%"
    return (f"{percent:.1f}%" if percent < 9.95 else f"{percent:.0f}%").rjust(SHARE_WIDTH)


def microseconds_text(microseconds: float | None) -> str:
    """Format a short time, 7 cells: ` 38 µs`, `1.24 ms`."""
    if microseconds is None or not math.isfinite(microseconds) or microseconds < 0:
        return f"{DASH} µs".rjust(MICROSECONDS_WIDTH)
    if microseconds < 999.5:
        number = f"{microseconds:.0f}" if microseconds >= 9.95 else f"{microseconds:.1f}"
        return f"{number} µs".rjust(MICROSECONDS_WIDTH)
    for unit, size in (("ms", 1e3), ("s ", 1e6)):
        if microseconds / size < 999.5:
            return f"{three_digits(microseconds / size)} {unit}".rjust(MICROSECONDS_WIDTH)
    return ">999 s "


def seconds_text(seconds: float | None) -> str:
    """Format the time since the start, 8 cells: `12.3 s`, `3m 05s`, `1h 02m`, `4d 07h`."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return DASH.rjust(SECONDS_WIDTH)
    if seconds < 59.95:
        return f"{seconds:.1f} s".rjust(SECONDS_WIDTH)
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days > 999:
        return ">999 d".rjust(SECONDS_WIDTH)
    text = f"{days}d {hours:02}h" if days else f"{hours}h {minutes:02}m" if hours else f"{minutes}m {rest:02}s"
    return text.rjust(SECONDS_WIDTH)


def duration_text(seconds: float) -> str:
    """Format a duration without padding: `38 µs`, `12.3 ms`, `4.6 s`, `1m 15s`."""
    return (microseconds_text(seconds * 1e6) if 0 < seconds < 0.9995 else seconds_text(seconds)).strip()


def unit_of_time(seconds: float) -> tuple[str, float]:
    """Return the unit of a duration and its seconds: `("ms", 1e-3)`."""
    return next(((unit, size) for unit, size in (("s", 1.0), ("ms", 1e-3)) if seconds >= size), ("µs", 1e-6))


def short_number(value: float) -> str:
    """Format a number without padding in three digits, and more of a large one: `1.52`, `196`, `1,204`."""
    return three_digits(value) if value < 999.5 else f"{value:,.0f}"


def share_words(share: float | None) -> str:
    """Return a fraction of 1 in per cent: `1.6 %`; nothing if it is unknown."""
    return share_text(share).strip().replace("%", " %") if share is not None else ""


def time_left_text(seconds: float) -> str:
    """Format a time left, which is an estimate, in at most 6 cells: `12 s`, `3m 05s`, `25 min`, `1h 02m`, `14 h`, `4d 07h`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    if not minutes:
        return f"{rest} s"
    if minutes < 10:
        return f"{minutes}m {rest:02}s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if not hours:
        return f"{minutes} min"
    if hours < 10:
        return f"{hours}h {minutes:02}m"
    days, hours = divmod(round(seconds / 3600), 24)
    if not days:
        return f"{hours} h"
    return f"{days}d {hours:02}h" if days < 10 else f"{days} d" if days <= 999 else ">999 d"


def shape_text(shape: tuple[int, ...]) -> str:
    """Format a tensor's shape, of any width: `512×256`."""
    return "×".join(map(str, shape)) if shape else "scalar"


def dtype_text(dtype: str) -> str:
    """Format a dtype in at most 4 cells: `f32`, `bf16`."""
    name = dtype.rpartition(".")[2]
    return _DTYPES.get(name, name[:4])


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "" if math.isfinite(value) else "Inf" if value > 0 else "-Inf"


def _scientific(value: float) -> str:
    for digits in (1, 0):
        mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
        text = f"{mantissa}e{int(exponent)}"
        if len(text) <= NUMBER_WIDTH:
            break
    return text


def sentence(text: str) -> str:
    """Return a clause as a sentence."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", "…")) else ".")
