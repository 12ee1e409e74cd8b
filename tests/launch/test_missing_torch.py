"""gradtui in a Python of its own (pipx, uvx) says where the project's torch is, and what to type there."""

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


def environment(path: Path, *, uv: bool = False) -> Path:
    package = path / "lib" / "python3.12" / "site-packages" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
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
    assert "uv run --with gradtui gradtui --steps 3 train.py" in capsys.readouterr().err


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
