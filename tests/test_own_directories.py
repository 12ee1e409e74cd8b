"""The directories that gradtui makes for itself are the user's alone, whatever the umask."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradtui.configuration.remembered_theme import remember_theme, theme_file
from gradtui.remote.serving.sockets import socket_directory
from gradtui.system.own_directories import make_private
from gradtui.system.run_files import RunFiles


@pytest.fixture(params=[0, 0o022, 0o077])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def _theme(_home: Path) -> None:
    remember_theme("nord")
    assert theme_file().exists()


def _log(_home: Path) -> None:
    RunFiles("train.py").new_log()


def _sockets(home: Path) -> None:
    assert socket_directory({"XDG_STATE_HOME": str(home)}).is_relative_to(home)


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize("make", [_theme, _log, _sockets])
def test_created_directories_are_private(make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> None:
    # The path of a socket must be short, and that of pytest's directory is not.
    with tempfile.TemporaryDirectory(prefix="gt") as short:
        state = Path(short) / "new" / "state"
        monkeypatch.setenv("XDG_STATE_HOME", str(state))
        make(state)
        made = {path: stat.S_IMODE(path.stat().st_mode) for path in Path(short).rglob("*") if path.is_dir()}
    assert state / "gradtui" in made
    assert set(made.values()) == {0o700}


def test_the_parent_of_the_sockets_is_closed_too() -> None:
    with tempfile.TemporaryDirectory(prefix="gt") as short:
        parent = Path(short) / "gradtui"
        parent.mkdir()
        parent.chmod(0o755)
        assert socket_directory({"XDG_STATE_HOME": short}) == parent / "sockets"
        assert stat.S_IMODE(parent.stat().st_mode) == 0o700


def test_one_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    open_to_all = tmp_path / "gradtui"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    before = stat.S_IMODE(tmp_path.stat().st_mode)
    make_private(open_to_all)
    assert stat.S_IMODE(open_to_all.stat().st_mode) == 0o700
    assert stat.S_IMODE(tmp_path.stat().st_mode) == before


def test_a_link_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError):
        make_private(tmp_path / "link")
