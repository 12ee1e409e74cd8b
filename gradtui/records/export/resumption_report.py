"""How one run continues another one, in the formats of `gradtui compare --resume`. Pure.

Names come from scripts and files, and may contain anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from gradtui.protocol.json_text import to_document
from gradtui.records.comparison.resumed_run import Compared, Resumption
from gradtui.system.printable import printable

_VERDICTS = {True: "equal", False: "DIFFERS", None: "unknown"}
_DIGITS = 8
"""Shown digits of a checksum."""


def resumption_report(found: Resumption, format_name: str) -> str:
    """Return it in a format: `text`, `json` or `markdown`; without control characters other than line ends."""
    if format_name == "json":
        return to_document({"schema": 1, **asdict(found)}) + "\n"
    lines = [*_heading(found)]
    cells = [("", "A", "B", ""), *map(_cells, found.rows)]
    if not found.rows:
        pass
    elif format_name == "markdown":
        lines += ["", *(f"| {' | '.join(each)} |" for each in (cells[0], ("---",) * 4, *cells[1:]))]
    else:
        widths = [max(map(len, column)) for column in zip(*cells)]
        lines += ["  " + "  ".join(cell.ljust(width) for cell, width in zip(each, widths)).rstrip() for each in cells]
    lines += [f"{'- ' if format_name == 'markdown' else '  '}found in B: {each}" for each in found.findings]
    return "".join(f"{_clean(line)}\n" for line in lines)


def _heading(found: Resumption) -> Iterator[str]:
    if not found.first_step:
        yield f"{found.b}: the script has loaded no training before a first step of an optimizer"
    elif found.saved_step is None:
        yield f"{found.b} has not loaded what {found.a} has saved; the last step of A and the first one of B:"
    else:
        after = f" after step {found.saved_step:,} of {found.last_step:,}"
        yield f"B (step {found.first_step:,}) continues from {found.file or 'a checkpoint'}, which A has saved{after}"


def _cells(row: Compared) -> tuple[str, str, str, str]:
    is_loss = row.name.startswith("loss")
    verdict = row.note if is_loss and row.is_equal is None else _VERDICTS[row.is_equal]
    note = f" ({row.note})" if row.note and verdict != row.note else ""
    return row.name, _value(row.a), _value(row.b), verdict + note


def _value(value: str | float | None) -> str:
    return "-" if value is None else value[:_DIGITS] if isinstance(value, str) else f"{value:.6g}"


def _clean(text: str) -> str:
    return printable(text.encode(errors="replace").decode())
