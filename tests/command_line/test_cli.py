"""The command line: what belongs to us, what to the script, and what is refused in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.command_lines import printed, refused
from helpers.targets import module, script
from hypothesis import given
from hypothesis import strategies as st

from gradtui.command_line.cli import parse
from gradtui.command_line.subcommand_table import SUBCOMMANDS
from gradtui.configuration.settings import Settings, Target

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def _outside_a_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The current directory belongs to no project, whose `pyproject.toml` each call of `parse` would read."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("empty"))
    yield
    os.chdir(before)


def test_defaults() -> None:
    expected = Settings(
        target=script("train.py"), plain=False, steps=None, summary=None, budget=0.01, refresh=4.0, log=None
    )
    assert parse(["train.py"]) == expected
    assert Settings(target=script("train.py")) == expected


def test_every_option(tmp_path: Path) -> None:
    words = ["--plain", "--steps", "20", "--summary", str(tmp_path / "s.json"), "--budget", "2%"]
    words += ["--theme", "nord", "--columns", "norm, bytes", "--order", "registration", "--refresh", "2"]
    words += ["--log", str(tmp_path / "o.log"), "train.py"]
    assert parse(words) == Settings(
        target=script("train.py"), plain=True, steps=20, summary=tmp_path / "s.json", budget=0.02,
        theme="nord", columns=("norm", "bytes"), order="registration", refresh=2.0, log=tmp_path / "o.log",
        rank_options=("--steps=20", "--budget=2%"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (["train.py", "--help", "--steps", "3", "-m", "x"], script("train.py", "--help", "--steps", "3", "-m", "x")),
        (["train.py", "--version"], script("train.py", "--version")),
        (["train.py", "--", "-x"], script("train.py", "--", "-x")),
        (["--", "train.py", "--plain"], script("train.py", "--plain")),
        (["--", "--odd name.py"], script("--odd name.py")),
        (["-m", "pack.train", "--help", "--plain"], module("pack.train", "--help", "--plain")),
        (["-mpack.train", "--version"], module("pack.train", "--version")),
        (["--plain", "-m", "pack", "--", "-m", "y"], module("pack", "--", "-m", "y")),
        (["--steps", "5", "-m", "pack", "script.py"], module("pack", "script.py")),
        (["--steps=5", "-m", "pack"], module("pack")),
        (["train.py", "", " ", "é ü"], script("train.py", "", " ", "é ü")),
    ],
)
def test_what_follows_belongs_to_the_script(words: list[str], target: Target) -> None:
    assert parse(words).target == target
    # What is written down to do the same again is read as the same.
    assert parse(["--plain", *target.words]).target == target


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8), max_size=6))
def test_arguments_are_untouched(arguments: list[str]) -> None:
    assert parse(["train.py", *arguments]).target == script("train.py", *arguments)
    assert parse(["--plain", "-m", "pack", *arguments]).target == module("pack", *arguments)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "no script to run"),
        (["--plain"], "no script to run"),
        ([""], "no script to run"),
        (["-m"], "'-m' requires an argument"),
        (["--bogus", "train.py"], "--bogus"),
        (["-x", "train.py"], "there is no option -x; options of the script go after it (--help lists the options)"),
        (
            ["--foo", "train.py"],
            "there is no option --foo; options of the script go after it (--help lists the options)",
        ),
        (["--bugdet", "2%", "train.py"], "there is no option --bugdet; did you mean --budget?"),
        (["--sum", "s.json", "train.py"], "there is no option --sum; did you mean --summary?"),
        (["chek", "train.py"], "there is no file 'chek'; did you mean gradtui check?"),
        (["--plain", "torchrn", "train.py"], "there is no file 'torchrn'; did you mean gradtui torchrun?"),
        (["pause"], "there is no file 'pause'; did you mean gradtui do pause?"),
        (["replay", "--theme", "norf", "run.zst"], "'norf' is no theme (the nearest is nord); write one of"),
        (["attach", "--theem", "nord"], "there is no option --theem; did you mean --theme?"),
        (["--theme", "norf", "train.py"], "'norf' is no theme (the nearest is nord); write one of gradtui-dark, "),
        (["--columns", "norm,x", "train.py"], "'x' is no column; write one of count, norm, "),
        (["--order", "calls", "train.py"], "'calls' is no order; write one of execution, registration"),
        (["--refresh", "60", "train.py"], "'60' is no refresh rate; write a number from 0.5 to 30 (times per second)"),
        (["--steps", "train.py"], "--steps"),
        (["--steps", "0", "train.py"], "--steps"),
        (["--steps", "-3", "train.py"], "--steps"),
        (["--steps", "1.5", "train.py"], "--steps"),
        (["--steps", "9" * 5_000, "train.py"], "is not a number of steps; write a whole number from 1 on"),
        (["--steps", "x", "train.py"], "--steps': 'x' is not a number of steps; write a whole number from 1 on"),
        (["--steps"], "--steps"),
        (["--budget", "1", "train.py"], "write 1% or a number below 1"),
        (["--budget", "0%", "train.py"], "not above 0%"),
        (["--budget", "101%", "train.py"], "not above 0%"),
        (["--budget", "-1%", "train.py"], "not a share of time"),
        (["--budget", "9" * 400 + "%", "train.py"], "not above 0%"),
        (["--ui-budget", "1%", "train.py"], "there is no option --ui-budget; did you mean --refresh?"),
        (["--refresh", "nan", "train.py"], "no refresh rate"),
        (["--refresh", "", "train.py"], "no refresh rate"),
        (["--budget", "nan", "train.py"], "not a share of time"),
        (["--budget", "", "train.py"], "not a share of time"),
        (["--summary", "/no such place/s.json", "train.py"], "no directory '/no such place'"),
        (["--summary", "", "train.py"], "is a directory"),
        (["--log", "/", "train.py"], "'/' is a directory"),
        (["--plain=yes", "train.py"], "--plain"),
    ],
)
def test_refused_in_one_line(words: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert part in refused(capsys, *words)


def test_summary_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    assert "cannot be written" in refused(capsys, "--summary", tmp_path / "s.json", "train.py")


def test_file_in_unsearchable_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, stat = str(tmp_path / "run.jsonl"), os.stat

    def denied(path: Any, **options: Any) -> os.stat_result:
        if str(path) == target:
            raise PermissionError(13, os.strerror(13), target)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", denied)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "cannot be written" in refused(capsys, "--record", target, "train.py")


def test_files_are_meant_from_where_we_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script may change directory before the summary is written."""
    monkeypatch.chdir(tmp_path)
    assert parse(["--summary", "s.json", "train.py"]).summary == tmp_path / "s.json"


@pytest.mark.parametrize("word", ["--help", "-h", "--version"])
def test_help_and_version(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "gradtui" in printed(capsys, word)


def test_the_help_lists_each_subcommand_once(capsys: pytest.CaptureFixture[str]) -> None:
    listed = re.findall(r"^  gradtui ([a-z]+)", printed(capsys, "--help"), flags=re.MULTILINE)
    assert sorted(listed) == sorted({*SUBCOMMANDS, "torchrun"})


def test_the_version_is_the_package_s_own(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gradtui.command_line.cli.__version__", "12.3")
    assert printed(capsys, "--version") == "gradtui 12.3\n"


def test_a_target_is_one_thing() -> None:
    for path, name in ((None, None), ("a.py", "b")):
        with pytest.raises(ValueError, match="either a path or a module"):
            Target(path=path, module=name)
    assert script("/some where/train.py").name == "train.py"
    assert script("dir/").name == "dir"
    assert module("pack.train").name == "pack.train"
