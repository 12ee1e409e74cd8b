"""Parquet: all tables in one file. A row has the column `table`, and the columns of its table; the others are null."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

from gradtui.records.export.formats.cells import header_words
from gradtui.records.export.formats.new_files import ExportError
from gradtui.records.export.formats.tables import TABLES, Kind, Row, Rows
from gradtui.system.optional_packages import install_words

_ROWS = 50_000
"""Rows of one table in a row group. Readers that want one table leave out the groups of the others by their statistics."""


def require_parquet() -> Any:
    """Return the package. Raises ExportError if it is missing."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ExportError(f"--parquet needs the package pyarrow: {install_words('pyarrow', 'parquet')}") from None
    return pyarrow


def write_parquet(rows: Rows, header: Mapping[str, Any], file: BinaryIO) -> int:
    """Write the tables to a file, and return the number of rows.

    Args:
        rows: the rows.
        header: the header of the recording, which becomes metadata of the file, as JSON under the name `gradtui`.
        file: the file.

    Raises:
        OSError: it cannot be written.
    """
    arrow = require_parquet()
    types = {
        Kind.INTEGER: arrow.int64(),
        Kind.NUMBER: arrow.float64(),
        Kind.TEXT: arrow.string(),
        Kind.FLAG: arrow.bool_(),
    }
    columns = {name: kind for table in TABLES for name, kind in table.columns.items()}
    fields = [("table", arrow.dictionary(arrow.int8(), arrow.string())), *((n, types[k]) for n, k in columns.items())]
    schema = arrow.schema(fields, metadata={"gradtui": json.dumps(header_words(header))})
    waiting: dict[str, list[Row]] = {table.name: [] for table in TABLES}
    count = 0
    with arrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for table, row in rows:
            waiting[table.name].append(row)
            count += 1
            if len(waiting[table.name]) >= _ROWS:
                _write(arrow, writer, table.name, waiting[table.name])
        for name, left in waiting.items():
            if left:
                _write(arrow, writer, name, left)
    return count


def _write(arrow: Any, writer: Any, table: str, rows: list[Row]) -> None:
    schema = writer.schema
    length = len(rows)
    arrays = [arrow.DictionaryArray.from_arrays(arrow.array([0] * length, arrow.int8()), [table])]
    known = rows[0].keys()
    for field in list(schema)[1:]:
        values = [row[field.name] for row in rows] if field.name in known else None
        arrays.append(arrow.nulls(length, field.type) if values is None else arrow.array(values, field.type))
    writer.write_table(arrow.Table.from_arrays(arrays, schema=schema), row_group_size=length)
    rows.clear()
