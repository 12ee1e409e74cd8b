"""CSV: a file for each table (RFC 4180, UTF-8), with the names of the columns in the first row."""

from __future__ import annotations

import csv
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gradtui.records.export.formats.tables import TABLES, Rows, Value

NAMES = tuple(f"{table.name}.csv" for table in TABLES)
"""The files: all tables, also those without rows."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
"""How a cell begins that a spreadsheet may execute (OWASP, CSV injection)."""


def write_csv(rows: Rows, folder: Path) -> int:
    """Write the tables into a directory, and return the number of rows. Raises OSError."""
    count = 0
    with ExitStack() as files:
        writers: dict[str, Any] = {}
        for table in TABLES:
            file = files.enter_context(open(folder / f"{table.name}.csv", "x", newline="", encoding="utf-8"))
            writers[table.name] = csv.writer(file)
            writers[table.name].writerow(table.columns)
        for table, row in rows:
            writers[table.name].writerow([_cell(row[name]) for name in table.columns])
            count += 1
    return count


def _cell(value: Value) -> Value:
    """Return what the module writes for a value. Text never begins as a formula does: an apostrophe precedes it then."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
