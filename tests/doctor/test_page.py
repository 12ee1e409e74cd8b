"""The page: what is on it, what is not, its text, its JSON and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradtui.command_line.doctor.installation import directories_part, packages_part, settings_part
from gradtui.command_line.doctor.lines import page_lines
from gradtui.command_line.doctor.machine import colours, python_part, system_part, terminal_part
from gradtui.command_line.doctor.page import ABILITIES, Lack, Part, page_of, public

LACK = Lack("mcp", "the package mcp is not installed", "gradtui mcp does not work", "pip install 'gradtui[mcp]'")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "homes" / "alice"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_neither_home_directory_nor_user_is_named(home: Path) -> None:
    assert public(f"{home}/venv/bin/python, {home}") == "~/venv/bin/python, ~"
    assert public("/scratch/alice/run, /scratch/alice") == "/scratch/USER/run, /scratch/USER"
    assert public({"a": [f"{home}/x", 3, None, True]}) == {"a": ["~/x", 3, None, True]}
    # Other names that begin alike stay.
    assert public(f"{home}2/x /data/alice-2") == f"{home}2/x /data/alice-2"


def test_control_characters_and_endless_values_stay_off_page() -> None:
    assert public("a\x1b[2Jb\n") == "a·[2Jb·"
    assert len(public("x" * 10_000)) == 500


def test_missing_things_give_exit_code_0_unless_asked() -> None:
    part = Part("packages", {}, (), (LACK, Lack("settings", "theme: no theme", "ignored", "gradtui config", True)))
    assert page_of([Part("packages", {}, (), (LACK,))], ()).exit_code == 0
    assert page_of([Part("packages", {}, (), (LACK,))], ("mcp",)).exit_code == 1
    seen = page_of([part], ())
    assert seen.exit_code == 1
    assert [each.name for each in seen.lacks] == ["settings", "mcp"], "what was asked for comes first"
    text = "\n".join(page_lines(seen))
    assert "! settings: theme: no theme" in text
    assert "- mcp: the package mcp is not installed\n  costs: gradtui mcp does not work\n  to get it: pip" in text


def test_document_has_every_part_and_what_is_missing() -> None:
    told = page_of([Part("torch", {"version": "2.9"}, ("2.9",)), Part("packages", {}, (), (LACK,))], ()).document()
    assert json.loads(json.dumps(told)) == told
    assert (told["schema"], told["torch"], told["exit_code"]) == (1, {"version": "2.9"}, 0)
    assert told["missing"] == [
        {"name": "mcp", "what": LACK.what, "cost": LACK.cost, "remedy": LACK.remedy, "asked_for": False}
    ]


def test_lines_of_part_have_its_name_once() -> None:
    lines = page_lines(page_of([Part("torch", {}, ("2.9", "/site/torch"))], ()))
    assert lines[1:] == ["torch        2.9", "             /site/torch", "", "nothing is missing"]


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "16 million"),
        ({"TERM": "xterm-256color"}, "256"),
        ({"TERM": "xterm"}, "16"),
        ({"TERM": "dumb"}, "no"),
        ({}, "no"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "no"),
    ],
)
def test_colours(environ: dict[str, str], count: str) -> None:
    assert colours(environ) == count


def test_without_a_terminal_there_is_no_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gradtui.command_line.doctor.machine._why_no_screen", lambda environ: "standard input is not a terminal"
    )
    part = terminal_part({"TERM": "xterm-256color"})
    assert [each.name for each in part.lacks if each.name == "screen"] == ["screen"]
    assert page_of([part], ()).exit_code == 0
    assert page_of([part], ("screen",)).exit_code == 1


def test_the_machine() -> None:
    python, system = python_part(), system_part()
    assert python.facts["version"] == ".".join(map(str, sys.version_info[:3]))
    assert system.facts["memory"] > system.facts["memory_available"] > 0
    assert (python.lacks, system.lacks) == ((), ())


def test_directories_have_their_modes_and_none_is_made(home: Path) -> None:
    state = home / ".local" / "state" / "gradtui"
    state.mkdir(parents=True, mode=0o755)
    state.chmod(0o750)
    part = directories_part()
    found = {each["name"]: each for each in part.facts}
    assert (found["logs and reports"]["mode"], found["settings"]["mode"], found["sockets"]["mode"]) == (
        "0750",
        None,
        None,
    )
    assert [*home.rglob("*")] == [home / ".local", home / ".local" / "state", state]
    assert "~/.local/state/gradtui (logs and reports): 0750" in "\n".join(page_of([part], ()).parts[0].rows)


def test_directory_that_cannot_be_looked_up_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one below a directory of another user, which tests that run as root do not meet."""
    monkeypatch.setenv("XDG_STATE_HOME", "/" + "a" * 300)
    assert "a" * 300 in str(directories_part().facts)


def test_a_directory_that_is_not_writable_is_missing(home: Path) -> None:
    (home / ".local").write_text("a file, below which root makes no directory either")
    part = directories_part()
    assert "directory of logs and reports" in {each.name for each in part.lacks}


def test_a_wrong_setting_is_a_failure(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_part(tmp_path).rows == ("all as by default",)
    monkeypatch.setenv("GRADTUI_THEME", "no-such-theme")
    part = settings_part(tmp_path)
    assert [each.name for each in part.lacks] == ["settings"]
    assert page_of([part], ()).exit_code == 1


def test_secrets_in_settings_are_hidden(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADTUI_NOTIFY", "curl --token hunter2hunter2")
    assert "hunter2" not in str(settings_part(tmp_path))


def test_packages_that_are_missing_have_their_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: None if name == "mcp" else "1.0")
    part = packages_part()
    assert part.lacks == (LACK,)
    assert set(ABILITIES) >= {"mcp", "zstd", "report", "parquet", "tensorboard"}


def test_environment_for_viewing_gets_no_torch_by_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "importlib.metadata.version",
        lambda name: None if name in ("torch", "zstandard") else "1.0",
    )
    (lack,) = packages_part().lacks
    assert lack.remedy == "pip install zstandard"


def doctor(folder: Path, torch: str, *arguments: str) -> tuple[int, str]:
    """Run the command with this code as torch, on a machine without a driver's library."""
    (folder / "site").mkdir()
    (folder / "site" / "torch.py").write_text(torch)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder / "site"), *sys.path]),
        "HOME": str(folder),
        "TERM": "xterm-256color",
    }
    done = subprocess.run(
        [sys.executable, "-m", "gradtui", "doctor", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


NOT_INSTALLED = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"


@pytest.mark.parametrize(("asked", "code"), [((), 0), (("training",), 1)])
def test_the_command_where_torch_is_not_installed(tmp_path: Path, asked: tuple[str, ...], code: int) -> None:
    returned, text = doctor(tmp_path, NOT_INSTALLED, *asked)
    assert returned == code
    assert "\ntorch        not installed\n" in text
    assert "training: torch is not installed" in text
    assert str(tmp_path) not in text


def test_the_command_as_json(tmp_path: Path) -> None:
    returned, text = doctor(tmp_path, "raise OSError('libcudart.so.12: cannot open')", "--json")
    told: dict[str, Any] = json.loads(text)
    assert (returned, told["exit_code"]) == (1, 1)
    assert {*told} == {
        "schema", "gradtui", "python", "system", "torch", "driver", "terminal", "directories", "packages", "settings",
        "missing", "exit_code",
    }  # fmt: skip
    assert "libcudart" in told["torch"]["error"]
