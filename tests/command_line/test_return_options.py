"""The options of the return policies, whose number may be left out, and their entries in the files."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command_lines import refused

from gradtui.command_line.cli import parse
from gradtui.configuration.settings import Settings


@pytest.fixture(autouse=True)
def _outside_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def limits(settings: Settings) -> tuple[int, int]:
    return settings.return_at_nan, settings.return_at_spike


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], (0, 0)),
        (["--return-at-nan"], (3, 0)),
        (["--return-at-nan", "5"], (5, 0)),
        (["--return-at-nan=5", "--return-at-spike"], (5, 3)),
        (["--return-at-spike", "--plain"], (0, 3)),
        (["--return-at-nan", "off"], (0, 0)),
        (["--budget", "1%", "--return-at-nan"], (3, 0)),
    ],
)
def test_the_number_may_be_left_out(words: list[str], expected: tuple[int, int]) -> None:
    # Behind the script, and behind a module, the same words are the script's.
    for target in (["train.py", "--return-at-nan"], ["-m", "pack", "--return-at-nan"], ["--", "train.py"]):
        settings = parse([*words, *target])
        assert limits(settings) == expected
        assert settings.target.arguments == tuple(each for each in target if each.startswith("--return"))


@pytest.mark.parametrize("words", [["--return-at-nan"], ["--steps", "5", "--return-at-nan=3"]])
def test_a_check_takes_them_too(words: list[str]) -> None:
    assert limits(parse(["check", *words, "train.py", "--return-at-spike"])) == (3, 0)


@pytest.mark.parametrize("word", ["-1", "1.5", "true", "many"])
def test_what_is_no_number_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no number of returns" in refused(capsys, f"--return-at-nan={word}", "train.py")


@pytest.mark.parametrize("command", [[], ["check"]])
def test_the_projects_file_sets_them(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.gradtui]\nreturn-at-nan = 2\nreturn-at-spike = true\n")
    assert limits(parse([*command, "train.py"])) == (2, 3)
    assert limits(parse([*command, "--return-at-nan", "off", "train.py"])) == (0, 3)


def test_ranks_get_them_too() -> None:
    settings = parse(["--return-at-nan", "torchrun", "--nproc-per-node", "2", "train.py"])
    assert settings.rank_options == ("--return-at-nan=3",)
