"""gradtui in a Python of its own (pipx, uv) says where the project's torch is, and what to type there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gradtui.configuration.settings import Target
from gradtui.launch.missing_torch import environment_with_torch, has_torch, is_torch_missing


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a script, in a Python without torch."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(sys, "argv", ["gradtui", "--steps", "3", "train.py", "--api-key", "sk-secret"])
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def environment(path: Path, *, uv: bool = False, torch: str = "2.6.0+cu124") -> Path:
    package = path / "lib" / "python3.12" / "site-packages" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "version.py").write_text(f"from typing import Optional\n\n__version__ = '{torch}'\ndebug = False\n")
    (path / "pyvenv.cfg").write_text("home = /usr/bin\n" + ("uv = 0.9.1\n" if uv else ""))
    return path


SCRIPT = Target("train.py", None)


def test_torch_is_here() -> None:
    assert has_torch(SCRIPT)
    assert not is_torch_missing(SCRIPT)


def test_the_environment_of_the_project_has_torch(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment(project / ".venv")
    assert is_torch_missing(SCRIPT)
    line = capsys.readouterr().err
    assert "has no torch, and .venv has it" in line
    assert ".venv/bin/python -m pip install gradtui && .venv/bin/gradtui --steps 3 train.py" in line
    assert "sk-secret" not in line


def test_an_environment_of_uv_has_no_pip(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment(project / ".venv", uv=True)
    assert is_torch_missing(SCRIPT)
    assert "uv pip install gradtui" in capsys.readouterr().err


def test_active_environment_comes_before_this_one(project: Path) -> None:
    active, beside = environment(project / "active"), environment(project / ".venv")
    assert environment_with_torch(iter([project]), {"CONDA_PREFIX": str(active)}) == active
    assert environment_with_torch(iter([project / "src", project]), {"VIRTUAL_ENV": sys.prefix}) == beside
    assert environment_with_torch(iter([project / "src"]), {}) is None


def test_no_environment_has_torch(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert is_torch_missing(SCRIPT)
    assert "so there is no dashboard" in capsys.readouterr().err


def test_torch_beside_the_script_is_torch(project: Path) -> None:
    (project / "torch.py").touch()
    assert has_torch(SCRIPT)


@pytest.fixture
def own(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that runs gradtui, with a torch of its own."""
    prefix = environment(project / "own", uv=True, torch="2.8.0")
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.syspath_prepend(prefix / "lib" / "python3.12" / "site-packages")
    return prefix


def test_uv_run_with_brings_another_torch(
    project: Path, own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    extended = environment(project / ".venv", uv=True)
    monkeypatch.setenv("VIRTUAL_ENV", str(own))  # as `uv run --with` sets it
    (own / "pyvenv.cfg").write_text(f"uv = 0.9.1\nextends-environment = {extended}\n")
    assert not is_torch_missing(SCRIPT)
    line = capsys.readouterr().err
    assert "has torch 2.8.0, and .venv has 2.6.0+cu124;" in line
    assert "sk-secret" not in line


@pytest.mark.parametrize("mark", ["pipx_metadata.json", "uv-receipt.toml"])
def test_environment_of_a_tool_has_another_torch(
    project: Path, own: Path, capsys: pytest.CaptureFixture[str], mark: str
) -> None:
    environment(project / ".venv")
    assert not is_torch_missing(SCRIPT)
    assert capsys.readouterr().err == ""  # an environment that the user made
    (own / mark).touch()
    assert not is_torch_missing(SCRIPT)
    assert "and .venv has 2.6.0+cu124;" in capsys.readouterr().err


def test_the_same_torch_is_not_mentioned(project: Path, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extended = environment(project / ".venv", torch="2.8.0")
    (own / "pyvenv.cfg").write_text(f"extends-environment = {extended}\n")
    assert not is_torch_missing(SCRIPT)
    assert capsys.readouterr().err == ""
