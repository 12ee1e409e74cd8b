from __future__ import annotations

import csv
import io
import math

from hypothesis import given
from hypothesis import strategies as st

from gradtui.tui.plots.table import Table, csv_text, joined

# Python 3.10 reads no line with a zero in it.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.lists(st.tuples(TEXTS, st.none() | st.floats(), st.integers()), max_size=20), TEXTS)
def test_csv_module_reads_table_back(rows: list[tuple[str, float | None, int]], name: str) -> None:
    table = Table(("a", f"b{name}", "c"), tuple(rows))
    header, *read = list(csv.reader(io.StringIO(csv_text(table), newline="")))
    assert header == list(table.columns)
    assert len(read) == len(rows)
    for cells, (text, number, whole) in zip(read, rows):
        assert cells[0] == text
        assert int(cells[2]) == whole
        if number is None:
            assert cells[1] == ""
        elif math.isnan(number):
            assert cells[1] == "nan"
        else:
            assert float(cells[1]) == number


def test_curves_have_rows_for_any_step() -> None:
    table = joined("step", [("one", [1, 3], [0.5, math.nan]), ("two", [2, 3], [None, math.inf])])
    assert csv_text(table) == "step,one,two\n1,0.5,\n2,,\n3,nan,inf\n"


def test_columns_of_one_name_are_told_apart() -> None:
    assert joined("step", [("a", [1], [1.0]), ("a", [1], [2.0])]).columns == ("step", "a", "a (2)")


def test_no_curves_are_an_empty_table() -> None:
    assert csv_text(joined("step", [])) == "step\n"
