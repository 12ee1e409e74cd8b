"""The data of a recording in the formats of other programs: CSV, Parquet, TensorBoard, Chrome's trace event format.

`tables.py` says which columns there are, `rows.py` makes the rows from the events, and each format is a file of its own. A
format reads the rows once, in their order, and keeps few of them.
"""

from gradtui.records.export.formats.format import FORMATS, Format
from gradtui.records.export.formats.new_files import ExportError
from gradtui.records.export.formats.rows import rows
from gradtui.records.export.formats.tables import TABLES, Kind, Row, Rows, Table

__all__ = ["FORMATS", "TABLES", "ExportError", "Format", "Kind", "Row", "Rows", "Table", "rows"]
