"""`gradtui --version`, `--help` and the completion of a shell import little more than click."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.programs import run_program

ROOT = Path(__file__).parent.parent.parent
_SLOW = {
    "argparse", "asyncio", "dataclasses", "difflib", "json", "numpy", "platformdirs", "psutil", "random", "secrets", "shutil",
    "socket", "ssl", "subprocess", "tempfile", "textual", "torch",
}  # fmt: skip
"""What takes a millisecond to import, or more, and is not needed for an answer."""


def imported(words: list[str], **environ: str) -> tuple[set[str], str]:
    """Return what the command imports beyond click, and what it prints."""
    code = (
        "import sys, click\nbefore = set(sys.modules)\nfrom gradtui.command_line.cli import parse\n"
        f"try:\n    parse({words!r})\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print(*set(sys.modules) - before, file=sys.stderr)"
    )
    ended = run_program(code, check=False, **environ)
    return set(ended.stderr.split()), ended.stdout


@pytest.mark.parametrize("words", ["--version", "--help", "gradtui c", "gradtui check --", "gradtui attach --"])
def test_an_answer_imports_little_more_than_click(words: str) -> None:
    if words.startswith("--"):
        modules, text = imported([words])
    else:
        at = str(len(words.split(" ")) - 1)
        modules, text = imported([], _GRADTUI_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=at)
    assert text
    assert modules & _SLOW == set()
    own = {name for name in modules if name.startswith("gradtui.")}
    assert "gradtui.command_line.cli" in own
    assert len(own) <= 23
    assert {name.split(".")[1] for name in own} <= {"command_line", "configuration", "protocol", "system"}


def test_command_line_of_run_is_parsed_without_run() -> None:
    modules, _ = imported(["--plain", "train.py"])
    assert modules & {"torch", "textual", "rich", "numpy", "gradtui.launch.run"} == set()
    assert "gradtui.configuration.settings" in modules
