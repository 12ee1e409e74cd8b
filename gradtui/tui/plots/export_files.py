"""Writes what is visible to files: the data of each plot as CSV, the screen as SVG. Pure except for the writing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import BinaryIO

from gradtui.atomic_file import WriteFile
from gradtui.tui.plots.table import Table, csv_text


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
