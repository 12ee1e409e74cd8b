"""The data of a plot as a table, as CSV, and as files. Pure, except for the writing of files."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import BinaryIO

from gradtui.dataclass import dataclass
from gradtui.system.atomic_file import WriteFile

Cell = float | int | str | None


@dataclass(frozen=True)
class Table:
    """Named columns, and rows of the same length; None is an empty cell."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def joined(key: str, curves: Sequence[tuple[str, Sequence[float], Sequence[float | None]]]) -> Table:
    """Join curves, each a name with its steps and values, into a table with one row for each step that any of them has."""
    columns = [dict(zip(steps, values)) for _, steps, values in curves]
    steps = sorted(set().union(*columns)) if columns else []
    rows = tuple((int(step), *(column.get(step) for column in columns)) for step in steps)
    return Table((key, *_distinct([name for name, _, _ in curves])), rows)


def csv_text(table: Table) -> str:
    """Return the table as CSV: NaN as `nan`, infinity as `inf`, unknown values empty; every float is read back unchanged."""
    return "".join(map(_line, (table.columns, *table.rows)))


def _line(cells: Sequence[Cell]) -> str:
    text = io.StringIO()
    # The writer quotes fields that contain a character of its line terminator, so the terminator has both characters.
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def _distinct(names: Sequence[str]) -> list[str]:
    """Append a number to repeated names, because a reader that uses names as keys would lose a column."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result


def export(
    tables: Sequence[tuple[str, Table]], picture: Callable[[], str], write: WriteFile | None
) -> tuple[str, bool]:
    """Write a CSV file for each table that has rows, named after its plot, and the picture as SVG.

    Return the text to show to the user, and whether everything was written.
    """
    if write is None:
        return "There is no place to write files to.", False
    known = [(name, table) for name, table in tables if table.rows]
    try:
        paths = [write(f"plot-{name}", ".csv", partial(_fill, csv_text(table))) for name, table in known]
        paths.append(write("screen", ".svg", partial(_fill, picture())))
    except OSError as error:
        return f"It could not be written: {error.strerror or error}", False
    directory = os.path.dirname(paths[0])
    names = "\n".join(os.path.relpath(path, directory) for path in paths)
    hint = "" if known else "\nThe current view has no numbers."
    home = os.path.expanduser("~")
    shown = f"~{directory.removeprefix(home)}" if directory.startswith(f"{home}/") else directory
    return f"Written to {shown}:\n{names}{hint}", True


def _fill(text: str, file: BinaryIO) -> None:
    file.write(text.encode("utf-8", errors="replace"))
