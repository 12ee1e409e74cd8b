"""The subcommands on the command line, and the rules that options and `pyproject.toml` select."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from helpers.command_lines import printed, refused

from gradtui.command_line.cli import parse
from gradtui.command_line.subcommand_table import SUBCOMMANDS
from gradtui.configuration.settings import Check, Settings, Target
from gradtui.records.export import rule_pages
from gradtui.run.diagnostics import all_rules
from gradtui.run.state.findings import LEVELS

ROOT = Path(__file__).parents[2]
IDS = tuple(rule.id for rule in all_rules())
DEFAULTS = tuple(rule.id for rule in all_rules() if rule.is_default)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_has_defaults() -> None:
    expected = Settings(target=Target("train.py", None, ("--lr", "1")), plain=True, steps=60, budget=0.5, check=Check())
    assert parse(["check", "train.py", "--lr", "1"]) == expected
    assert Check() == Check(fail_on="error", format="text", output=None)


def test_check_has_options(folder: Path) -> None:
    words = [
        "--steps",
        "5",
        "--fail-on",
        "note",
        "--format",
        "sarif",
        "--output",
        "o",
        "--summary",
        "s",
        "--ignore",
        "GT1",
    ]
    assert parse(["check", *words, "-m", "pack", "--steps", "x"]) == Settings(
        target=Target(None, "pack", ("--steps", "x")),
        plain=True,
        steps=5,
        budget=0.5,
        summary=folder / "s",
        rules=tuple(id_ for id_ in DEFAULTS if not id_.startswith("GT1")),
        check=Check("note", "sarif", folder / "o"),
    )


@pytest.mark.parametrize(
    ("words", "path", "arguments", "is_check"),
    [
        (["check", "check"], "check", (), True),
        (["check", "--", "-x.py"], "-x.py", (), True),
        (["./check", "train.py"], "./check", ("train.py",), False),
        (["--", "check"], "check", (), False),
        (["--plain", "rules"], "rules", (), False),
        (["train.py", "check"], "train.py", ("check",), False),
    ],
)
def test_a_first_word_that_is_a_subcommand(
    words: list[str], path: str, arguments: tuple[str, ...], is_check: bool
) -> None:
    settings = parse(words)
    assert settings.target == Target(path, None, arguments)
    assert (settings.check is not None) == is_check


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["check"], "no script to run"),
        (["check", "--plain", "train.py"], "--plain"),
        (["check", "--steps", "0", "train.py"], "'0' is not a number of steps"),
        (["check", "--fail-on", "fatal", "train.py"], "'fatal' is not one of 'error', 'warning', 'note'"),
        (["check", "--format", "xml", "train.py"], "'xml' is not one of 'text', 'json', 'sarif', 'github'"),
        (["check", "--output", "/no such place/o", "train.py"], "no directory '/no such place'"),
        (["check", "--select", "GT299", "train.py"], "'GT299' is no rule (the nearest is GT2"),
        (["--plain", "--ignore", "GT101,,", "train.py"], "'' is no rule; write an id or its beginning"),
        (["--ignore", "GT", "train.py"], "no rule is left to run; select more, or ignore fewer"),
        (["explain"], "ID"),
        (["explain", "GT204", "GT205"], "GT205"),
        (["explain", "GT2\x1b[0m"], "is no rule"),
        (["explain", "GT2209"], "'GT2209' is no rule (the nearest is GT220); gradtui rules lists all"),
        (["rules", "--format", "sarif"], "'sarif' is not one of 'text', 'json'"),
        (["rules", "GT204"], "GT204"),
    ],
)
def test_refused_in_one_line(words: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, *words)
    assert part in line
    assert line.rstrip("\n").isprintable()


def test_rules_of_command_line_and_of_project(folder: Path) -> None:
    scripts = folder / "src"
    scripts.mkdir()
    assert parse(["src/train.py"]).rules is None
    (folder / "pyproject.toml").write_text('[tool.gradtui]\nignore = ["GT204", "gt1"]\n', encoding="utf-8")
    left = tuple(id_ for id_ in DEFAULTS if not id_.startswith(("GT1", "GT204")))
    for words in (["src/train.py"], ["check", "src/train.py"], ["--plain", "-m", "train"]):
        assert parse(words).rules == left
    without = tuple(id_ for id_ in left if not id_.startswith(("GT3", "GT4", "GT20")))
    assert parse(["--ignore", "GT3", "--ignore=GT4,GT20", "src/train.py"]).rules == without
    assert parse(["--select", "GT204", "src/train.py"]).rules == ("GT204",)
    assert parse(["--select", "GT504", "src/train.py"]).rules == ("GT504",)
    assert parse(["--select", "GT", "src/train.py"]).rules == IDS
    # The nearest file counts, and a module belongs to the current directory.
    (scripts / "pyproject.toml").write_text('[tool.gradtui]\nselect = ["GT203"]\n', encoding="utf-8")
    assert parse(["src/train.py"]).rules == ("GT203",)
    assert parse(["-m", "src.train"]).rules == left


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("[tool.gradtui", "it is not TOML"),
        ("[tool.gradtui]\nselect = true", "select: it is no list of strings"),
        ('[tool.gradtui]\nselect = ["GT2O4"]', "'GT2O4' is no rule (the nearest is GT204)"),
    ],
)
def test_a_bad_project_file_is_named(content: str, part: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").write_text(content, encoding="utf-8")
    line = refused(capsys, "check", "train.py")
    assert line.startswith(f"gradtui: {folder / 'pyproject.toml'}: ")
    assert part in line
    # A run is worth more than the rules that it checks.
    assert parse(["train.py"]).rules is None
    assert capsys.readouterr().err == f"{line.rstrip()}; ignored\n"


def test_directory_that_is_gone_belongs_to_no_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError("no directory")

    monkeypatch.setattr(os, "getcwd", gone)
    assert parse(["-m", "train"]).rules is None
    assert parse(["train.py"]).rules is None


def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "rules").splitlines()
    entries = json.loads(printed(capsys, "rules", "--format", "json"))
    assert tuple(line.split()[0] for line in lines) == tuple(entry["id"] for entry in entries) == IDS
    for line, entry, rule in zip(lines, entries, all_rules()):
        assert entry == {"id": rule.id, "level": rule.level, "title": rule.title, "default": rule.is_default}
        assert line.split(maxsplit=3) == [rule.id, rule.level, "on" if rule.is_default else "off", rule.title]


def test_rule_is_explained_by_page_and_example(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "explain", "gt203")
    page = (ROOT / "docs" / "rules" / "GT203.md").read_text(encoding="utf-8").strip()
    example = (ROOT / "docs" / "rules" / "GT203.py").read_text(encoding="utf-8").strip()
    assert text.startswith(page)
    assert "# gradtui: ignore[GT203]" in text
    assert text.endswith(f"```python\n{example}\n```\n")


def test_rule_off_is_explained_with_switch(capsys: pytest.CaptureFixture[str]) -> None:
    assert "**How to turn it on.** Pass `--select GT504`" in printed(capsys, "explain", "GT504")
    assert "How to turn it on" not in printed(capsys, "explain", "GT203")


def test_rule_without_page_has_its_own_words(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rule_pages, "_FOLDERS", (folder,))
    rule = next(rule for rule in all_rules() if rule.id == "GT203")
    text = printed(capsys, "explain", "GT203")
    assert all(words in text for words in (rule.title, rule.why, rule.remedy))
    assert "Example" not in text


def test_wheel_has_pages_where_they_are_read() -> None:
    installed, clone = (folder.relative_to(ROOT).as_posix() for folder in rule_pages._FOLDERS)
    table = "[tool.hatch.build.targets.wheel.force-include]"
    assert f'{table}\n"{clone}" = "{installed}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_choices_are_the_levels(capsys: pytest.CaptureFixture[str]) -> None:
    assert f"[{'|'.join(LEVELS)}]" in printed(capsys, "check", "--help")


def test_help_names_the_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--help")
    assert all(f"\n  gradtui {name} " in text for name in SUBCOMMANDS)
