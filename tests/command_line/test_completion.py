"""What the shell completes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from gradtui.command_line.cli import _command
from gradtui.command_line.subcommand_table import SUBCOMMANDS
from gradtui.configuration.choices import COLUMNS, THEMES
from gradtui.run.diagnostics import all_rules

ROOT = Path(__file__).parents[2]
FILES = ("file", "")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current directory has two scripts, data, and a folder with a script."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for name in ("train.py", "cifar.py", "data.txt", "src/eval.py"):
        (tmp_path / name).touch()


def completed(*words: str) -> list[tuple[str, str]]:
    *before, incomplete = words
    return [
        (item.type, item.value)
        for item in ShellComplete(_command, {}, "gradtui", "").get_completions(before, incomplete)
    ]


def plain(*words: str) -> list[str]:
    return [value for kind, value in completed(*words) if kind == "plain"]


def test_first_word_is_subcommand_or_script() -> None:
    assert completed("") == [FILES, *(("plain", name) for name in (*SUBCOMMANDS, "cifar.py", "train.py"))]
    assert completed("c") == [
        ("file", "c"),
        ("plain", "check"),
        ("plain", "compare"),
        ("plain", "config"),
        ("plain", "cifar.py"),
    ]
    assert completed("src/e") == [("file", "src/e")]
    assert completed("--plain", "--steps", "3", "r") == [
        ("file", "r"),
        *(("plain", name) for name in ("replay", "rules", "runs", "report")),
    ]
    assert completed("-m", "pack", "") == [FILES]


def test_options_end_where_the_script_begins() -> None:
    assert {"--plain", "--budget", "--theme"} <= set(plain("--"))
    assert plain("--pl") == ["--plain"]
    assert completed("train.py", "--") == [("file", "--")]
    assert completed("train.py", "check", "--") == [("file", "--")]
    assert completed("train.py", "") == [FILES]


def test_subcommands_have_their_own_options_and_words() -> None:
    assert {"--fail-on", "--format"} <= set(plain("check", "--"))
    assert "--budget" not in plain("check", "--")
    assert plain("check", "--format", "s") == ["sarif"]
    assert completed("check", "tr") == [("file", "tr")]
    assert completed("check", "--steps", "3", "train.py", "da") == [("file", "da")]
    assert plain("config", "--pa") == ["--path"]
    assert plain("explain", "gt5") == [rule.id for rule in all_rules() if rule.id.startswith("GT5")]


def test_values_of_options() -> None:
    assert plain("--theme", "gr") == [name for name in THEMES if name.startswith("gr")]
    assert plain("--order", "") == ["execution", "registration"]
    assert plain("--columns", "s") == [name for name in COLUMNS if name.startswith("s")]
    assert completed("--summary", "s.js") == [("file", "s.js")]
    assert completed("--schedule=s") == [("file", "s")]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(tmp_path: Path) -> None:
    gradtui = tmp_path / "bin" / "gradtui"
    gradtui.parent.mkdir()
    gradtui.write_text(f"#!{sys.executable}\nfrom gradtui.command_line.cli import main\nmain()\n", encoding="utf-8")
    gradtui.chmod(0o755)
    script = (
        'eval "$(_GRADTUI_COMPLETE=bash_source gradtui)"\n'
        'compopt() { echo "files"; }\n'  # bash itself completes files, but not without a terminal
        'COMP_WORDS=(gradtui c) COMP_CWORD=1\n_gradtui_completion gradtui\necho "${COMPREPLY[@]}"\n'
        'COMP_WORDS=(gradtui src/) COMP_CWORD=1\n_gradtui_completion gradtui\necho "${COMPREPLY[@]}"\n'
    )
    path = f"{gradtui.parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == ["files", "check compare config cifar.py", "files", ""]
