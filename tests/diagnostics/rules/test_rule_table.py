"""What each rule reports of states that events build, as a table, and of the closest states of which it must not report."""

from __future__ import annotations

from collections import ChainMap
from importlib import import_module
from pathlib import Path

import pytest
from helpers.rule_rows import Row, Table, check_row

from gradtui.run.diagnostics.registry import own_rules

FILES = sorted(Path(__file__).parent.glob("rows_*.py"))
TABLE: Table = ChainMap(*({**import_module(file.stem).ROWS} for file in FILES))
CASES = [pytest.param(rule, row, id=f"{rule} {row.case}") for rule in sorted(TABLE) for row in TABLE[rule]]


@pytest.mark.parametrize(("rule", "row"), CASES)
def test_rule_reports_what_its_row_says(rule: str, row: Row) -> None:
    check_row(rule, row)


@pytest.mark.parametrize("rule", [rule.id for rule in own_rules()])
def test_each_rule_has_rows_of_both_kinds(rule: str) -> None:
    kinds = {bool(row.matches) for row in TABLE.get(rule, ())}
    assert kinds == {True, False}, "a rule needs a state in which it reports, and the closest one in which it must not"


def test_cases_of_a_rule_have_different_names() -> None:
    names = [(rule, row.case) for rule, rows in TABLE.items() for row in rows]
    assert len(names) == len({*names})


def test_each_rule_is_in_one_file() -> None:
    assert len(TABLE) == sum(len(import_module(file.stem).ROWS) for file in FILES)
