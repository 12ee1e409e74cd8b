"""Write plain data as JSON.

JSON has no numbers that are not finite (RFC 8259, section 6): for gradtui's own readers such a number is the string "NaN",
"Infinity" or "-Infinity", and for other programs null.
"""

from __future__ import annotations

import json
import math
from typing import Any

_COMPACT = (",", ":")


def to_line(value: Any) -> str:
    """Return a converted value as one line of JSON, without a line break."""
    try:
        return json.dumps(value, allow_nan=False, separators=_COMPACT)
    except ValueError:
        return json.dumps(spelled(value), allow_nan=False, separators=_COMPACT)


def to_document(value: Any, *, is_compact: bool = False, ensure_ascii: bool = True) -> str:
    """Return plain data as JSON for other programs, in which a number that is not finite is null."""
    layout: dict[str, Any] = {"separators": _COMPACT} if is_compact else {"indent": 1}
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=ensure_ascii, **layout)
    except ValueError:
        return json.dumps(spelled(value, are_null=True), allow_nan=False, ensure_ascii=ensure_ascii, **layout)


def spelled(value: Any, *, are_null: bool = False) -> Any:
    """Return a value in which numbers that are not finite are strings, or null."""
    if isinstance(value, float) and not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return None if are_null else name
    if isinstance(value, (list, tuple)):
        return [spelled(each, are_null=are_null) for each in value]
    if isinstance(value, dict):
        return {name: spelled(each, are_null=are_null) for name, each in value.items()}
    return value
