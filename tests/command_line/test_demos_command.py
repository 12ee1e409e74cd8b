"""`gradtui demos` writes the scripts that the manual runs, where the manual has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradtui.command_line.cli import parse

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


def run(*words: str) -> object:
    with pytest.raises(SystemExit) as ended:
        parse(["demos", *words])
    return ended.value.code


def test_what_manual_runs_is_written_and_replaces_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "new" / "demos" / "coop_like.py"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert run(str(tmp_path / "new")) == 0
    named = {name for page in PAGES for name in re.findall(r"(?:demos|docs/rules)/\w+\.(?:py|toml)", page.read_text())}
    assert len(named) > 12
    assert [name for name in sorted(named) if not (tmp_path / "new" / name).exists()] == []
    assert mine.read_text() == "mine"
    assert "; 1 file there already" in capsys.readouterr().out
    assert run(str(tmp_path / "new")) == 0
    assert "wrote nothing" in capsys.readouterr().out


def test_a_directory_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert run(str(tmp_path / "file")) == 2
    assert "cannot write into" in capsys.readouterr().err
