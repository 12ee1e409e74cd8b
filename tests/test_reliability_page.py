"""`docs/explanation/reliability.md` promises nothing that no test holds: each line of its tables names tests that exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "explanation" / "reliability.md"
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| what happens |"))
]


def test_the_page_has_its_tables() -> None:
    assert len(ROWS) >= 35
    assert {len(row) for row in ROWS} == {4}


def test_each_line_is_held_by_tests() -> None:
    wrong = [row[0] for row in ROWS if not is_held(row)]
    assert wrong == []


def is_held(row: list[str]) -> bool:
    named = re.findall(r"`([^`]+)::(\w+)`", row[3])
    only_names = re.sub(r"`[^`]+`", "", row[3]).strip(" ,") == ""
    return all(row) and bool(named) and only_names and all(name in functions(file) for file, name in named)


@functools.cache
def functions(file: str) -> set[str]:
    """Return the names of the test functions in a file below `tests`, none if there is no such file."""
    if not (TESTS / file).is_file():
        return set()
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
