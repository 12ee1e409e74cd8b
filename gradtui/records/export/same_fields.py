"""Make a part of the summary of what has fields of the same names. Pure."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

_T = TypeVar("_T")


def taken(kind: type[_T], source: object, **others: Any) -> _T:
    """Return a part of the summary whose values are those of the same names in `source`, except for `others`."""
    names = (each.name for each in fields(kind) if each.name not in others)  # type: ignore[arg-type]
    return kind(**others, **{name: getattr(source, name) for name in names})
