"""Units of bytes: their names, which of them suits a number, and sizes as people write them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

UNITS = tuple((name, 1024**power) for power, name in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")))
"""(name, bytes) of the binary units, ascending."""

FACTORS: Mapping[str, int] = MappingProxyType(
    {"": 1, "b": 1}
    | {f"{letter}{ending}": 1024**power for power, letter in enumerate("kmgt", 1) for ending in ("", "i", "ib")}
    | {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
)
"""A unit as people write it, in lower case -> bytes. Powers of 1,000 need the `b`: `2G` is 2 GiB, `2 GB` is not."""

_SIZE = r"([0-9,]{0,24}\.?[0-9]{1,18}(?:e[0-9]{1,2})?)\s*([a-z]{0,3})"


def unit_of(size: float) -> tuple[str, int]:
    """Return the unit in which a number of bytes has at most three digits before the point, and the unit's bytes."""
    return next((unit for unit in UNITS if size < 1000 * unit[1]), UNITS[-1])


def parse_size(text: str) -> int | None:
    """Return the bytes of a size such as `8GiB`, `500 MB` or `1.5g`, in any case; None if it is no size."""
    written = re.fullmatch(_SIZE, text.strip().lower())
    if written is None or written[2] not in FACTORS:
        return None
    return int(float(written[1].replace(",", "")) * FACTORS[written[2]])
