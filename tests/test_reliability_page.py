"""`docs/reliability.md` promises nothing that no test holds: each line of its tables names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "reliability.md"
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| what happens |"))
]


def test_the_page_has_its_tables() -> None:
    assert len(ROWS) >= 35
    assert {len(row) for row in ROWS} == {4}


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_line_is_held_by_tests(row: list[str]) -> None:
    assert all(row)
    named = re.findall(r"`([^`]+)::(\w+)`", row[3])
    assert named
    assert re.sub(r"`[^`]+`", "", row[3]).strip(" ,") == ""
    for file, name in named:
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
