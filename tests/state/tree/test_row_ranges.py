"""Rows as a person names them."""

from __future__ import annotations

import pytest

from gradtui.run.state.tree.row_ranges import BadRows, joined, objection_to_rows, others, ranges_of, text_of, without

ROWS = 20


@pytest.mark.parametrize(
    "text", ["0:8", "5", ":8", "8:", "-4:", ":-4", "-1", "-3", "0:3,7:9", "7:9, 0:3,2:5,5", "0:20", ":", "19"]
)
def test_a_text_means_what_pythons_slices_mean(text: str) -> None:
    numbers = list(range(ROWS))
    named: set[int] = set()
    for part in text.replace(" ", "").split(","):
        found = eval(f"numbers[{part}]", {"numbers": numbers})
        named.update(found if isinstance(found, list) else [found])
    ranges = ranges_of(text, ROWS)
    assert [row for begin, end in ranges for row in range(begin, end)] == sorted(named)
    assert ranges_of(text_of(ranges), ROWS) == ranges


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' names no rows: write 0:32000, 5, 32000: or 0:10,20:30"),
        ("a:b", "'a:b' names no rows: write 0:32000, 5, 32000: or 0:10,20:30"),
        ("0:10:2", "'0:10:2' names no rows: write 0:32000, 5, 32000: or 0:10,20:30"),
        ("1,", "'1,' names no rows: write 0:32000, 5, 32000: or 0:10,20:30"),
        ("9" * 19, f"'{'9' * 19}' names no rows: write 0:32000, 5, 32000: or 0:10,20:30"),
        ("20", "20 goes beyond the rows of the parameter, which are 0 to 19"),
        ("0:21", "0:21 goes beyond the rows of the parameter, which are 0 to 19"),
        ("20:", "20: goes beyond the rows of the parameter, which are 0 to 19"),
        ("-21:", "-21: goes beyond the rows of the parameter, which are 0 to 19"),
        ("5:5", "5:5 has no rows: a range ends after its beginning"),
        ("9:-12", "9:-12 has no rows: a range ends after its beginning"),
    ],
)
def test_names_without_rows_are_refused(text: str, why: str) -> None:
    with pytest.raises(BadRows) as refused:
        ranges_of(text, ROWS)
    assert str(refused.value) == why
    assert objection_to_rows(text) == (why if "names no rows" in why else None)


def test_ranges_are_sets_of_rows() -> None:
    one, two = ((0, 4), (6, 9)), ((3, 7), (15, 20))
    as_sets = [{row for begin, end in ranges for row in range(begin, end)} for ranges in (one, two)]

    def rows(ranges: tuple[tuple[int, int], ...]) -> set[int]:
        return {row for begin, end in ranges for row in range(begin, end)}

    assert rows(joined([*one, *two])) == as_sets[0] | as_sets[1]
    assert rows(without(one, two, ROWS)) == as_sets[0] - as_sets[1]
    assert rows(others(two, ROWS)) == set(range(ROWS)) - as_sets[1]
    assert others(((0, ROWS),), ROWS) == ()
    assert text_of(one, most=1) == "0:4,…"
