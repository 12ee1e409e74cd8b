"""Values that every format can hold. Names are whatever somebody has written, and a damaged recording has any number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gradtui.records.export.formats.tables import Kind, Row, Table, Value
from gradtui.system.printable import printable

_INT64 = 1 << 63


def text_cell(text: str) -> str:
    """Return text of one line that can be encoded: control characters become dots, half of a surrogate pair a question mark."""
    if text.isascii() and text.isprintable():
        return text
    return printable(text).encode("utf-8", "replace").decode()


def typed(table: Table, row: Row) -> Row:
    """Return a row with values of the types of its columns. What does not fit into 64 bits is None."""
    return {name: _value(row[name], kind) for name, kind in table.columns.items()}


def _value(value: Value, kind: Kind) -> Value:
    if value is None or kind is Kind.FLAG or (kind is Kind.NUMBER and type(value) is float):
        return value
    if kind is Kind.TEXT:
        return text_cell(value) if isinstance(value, str) else None
    if not isinstance(value, (int, float)):
        return None
    if kind is Kind.INTEGER:
        return int(value) if isinstance(value, int) and -_INT64 <= value < _INT64 else None
    try:
        return float(value)
    except OverflowError:
        return None


def header_words(header: Mapping[str, Any]) -> dict[str, str]:
    """Return the header of a recording as words: numbers and lists are JSON."""
    return {
        text_cell(name): text_cell(value if isinstance(value, str) else json.dumps(value))
        for name, value in header.items()
        if value is not None
    }


def started_at(header: Mapping[str, Any]) -> float:
    """Return the Unix time of the start of a run; 0 if the header does not say it."""
    began = header.get("began")
    return float(began) if isinstance(began, (int, float)) and 0 <= began < 1e11 else 0.0
