"""Comments of the script that ignore a rule at the line that a finding points to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradtui.run.diagnostics.ignore_comments import is_ignored
from gradtui.run.state.findings import Finding, Level, Status


def finding_at(file: Path | str | None, line: int | None, rule: str = "GT204") -> Finding:
    name = str(file) if file is not None else None
    return Finding(rule, Level.ERROR, Status.CONFIRMED, "", "", "", 1, 1, file=name, line=line)


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# gradtui: ignore[GT204]", True),
        ("#gradtui:ignore[GT204]", True),
        ("# why. gradtui: ignore[GT204]", False),
        ("# gradtui: ignore[gt203, gt204]  # and why", True),
        ("# noqa: E501  # gradtui: ignore[GT2]", True),
        ("# gradtui: ignore[GT3]", False),
        ("# gradtui: ignore[GT2044]", False),
        ("# gradtui: ignore[]", False),
        ("# gradtui: ignore[ , ]", False),
        ("# gradtui: ignore", False),
        ("gradtui: ignore[GT204]", False),
    ],
)
def test_comments(comment: str, expected: bool, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(f"# é\r\noptimizer.step()  {comment}\r\nloss.backward()\n".encode("latin-1"))
    assert is_ignored(finding_at(script, 2)) == expected
    assert not is_ignored(finding_at(script, 1))
    assert not is_ignored(finding_at(script, 3))


def test_a_place_that_is_unknown_or_no_file(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("x  # gradtui: ignore[GT]\n", encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    for file, line in (
        (None, None), (script, None), (script, 0), (script, -1), (script, 2), (tmp_path, 1), (tmp_path / "none.py", 1),
        (tmp_path / "pipe", 1), ("/dev/zero", 1), ("<string>", 1), ("a\0b", 1),
    ):  # fmt: skip
        assert not is_ignored(finding_at(file, line))
    assert is_ignored(finding_at(script, 1, rule="GT999"))
