"""The moment at which torch is there: after its import, once, in this process only, and with nothing of ours left behind."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest
from helpers.programs import run_program

from gradtui.runner import torch_import_hook
from gradtui.runner.torch_import_hook import when_torch_is_imported

NAME = "a_stand_in_for_torch"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that is watched for in torch's place."""
    monkeypatch.setattr(torch_import_hook, "_NAME", NAME)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    file = tmp_path / f"{NAME}.py"
    file.write_text("__version__ = '1'\n")
    importlib.invalidate_caches()
    return file


def test_it_is_told_once_and_leaves_nothing(stand_in: Path) -> None:
    before = list(sys.meta_path)
    told: list[str] = []
    assert when_torch_is_imported(lambda: told.append(sys.modules[NAME].__version__)) is not None
    assert told == []
    module = importlib.import_module(NAME)
    assert told == ["1"]
    assert sys.meta_path == before
    assert module.__spec__ is not None
    assert type(module.__loader__).__module__ == type(module.__spec__.loader).__module__ == "_frozen_importlib_external"
    importlib.reload(module)
    assert told == ["1"]


def test_what_is_there_already_is_told_at_once(stand_in: Path) -> None:
    importlib.import_module(NAME)
    told: list[int] = []
    assert when_torch_is_imported(lambda: told.append(1)) is None
    assert told == [1]


def test_failing_import_is_of_script(stand_in: Path) -> None:
    stand_in.write_text("raise OSError('libcudart.so is missing')\n")
    told: list[int] = []
    when_torch_is_imported(lambda: told.append(1))
    with pytest.raises(OSError, match="libcudart") as raised:
        exec(f"import {NAME}")
    assert [str(entry.path) for entry in raised.traceback[1:]] == ["<string>", str(stand_in)]
    assert told == []
    stand_in.write_text("__version__ = '22'\n")
    importlib.invalidate_caches()
    importlib.import_module(NAME)
    assert told == [1]


def test_where_there_is_none_nothing_is_found(stand_in: Path) -> None:
    stand_in.unlink()
    when_torch_is_imported(lambda: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(NAME)


def test_another_process_is_not_ours(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    when_torch_is_imported(lambda: told.append(1))
    monkeypatch.setattr(os, "getpid", lambda: 1)
    importlib.import_module(NAME)
    assert told == []


def test_forgotten_it_says_nothing(stand_in: Path) -> None:
    told: list[int] = []
    arrival = when_torch_is_imported(lambda: told.append(1))
    arrival.forget()
    arrival.forget()
    importlib.import_module(NAME)
    assert told == []


def test_what_the_command_imports_has_no_torch() -> None:
    code = "import sys, gradtui.launch.run, gradtui.launch.screen_run; print('torch' in sys.modules)"
    assert run_program(code).stdout == "False\n"
