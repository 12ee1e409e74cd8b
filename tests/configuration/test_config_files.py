"""The TOML files with settings: the table `[tool.gradtui]` of a project, and the user's own file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradtui.configuration.config_files import project_file, read_project_table, read_user_table, user_file
from gradtui.protocol.codec import BadEntry


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file, whose directory exists."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "gradtui").mkdir()
    return tmp_path / "gradtui" / "config.toml"


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    assert project_file(inner) == tmp_path / "pyproject.toml"
    (tmp_path / "a" / "pyproject.toml").mkdir()
    assert project_file(inner) == tmp_path / "pyproject.toml"
    (inner / "pyproject.toml").touch()
    assert project_file(inner) == inner / "pyproject.toml"


@pytest.mark.parametrize(
    ("content", "table"),
    [
        (b"", {}),
        (b"[tool.ruff]\nselect = 3\n", {}),
        (b"this is not TOML", {}),
        (b'[project]\nname = "uses-gradtui"\n', {}),
        (b"[tool.gradtui]\n", {}),
        (b'[tool.gradtui]\nselect = ["GT2"]\nkeys.pause = 3\n', {"select": ["GT2"], "keys": {"pause": 3}}),
    ],
)
def test_tables(content: bytes, table: object, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    assert read_project_table(tmp_path / "pyproject.toml") == table


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"[tool.gradtui", "it is not TOML: "),
        (b"# gradtui\na = " + b"[" * 20_000, "its brackets are nested too deeply"),
        (b"# gradtui\na = " + b"1" * 5_000, "it is not TOML: "),
        (b"# gradtui \xff\n", "it is not a text in UTF-8"),
        (b"tool = 'gradtui'\n", "tool is no table; write [tool.gradtui]"),
        (b"[tool]\ngradtui = ['GT2']\n", "gradtui is no table; write [tool.gradtui]"),
    ],
)
def test_bad_tables(content: bytes, part: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    with pytest.raises(BadEntry) as caught:
        read_project_table(tmp_path / "pyproject.toml")
    assert part in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path, own: Path) -> None:
    with pytest.raises(BadEntry, match="No such file"):
        read_project_table(tmp_path / "pyproject.toml")
    own.mkdir()
    with pytest.raises(BadEntry, match="Is a directory"):
        read_user_table()
    own.rmdir()
    os.mkfifo(own)
    with pytest.raises(BadEntry, match="it is no regular file"):
        read_user_table()


def test_the_user_s_file(own: Path) -> None:
    assert user_file() == own
    assert read_user_table() == {}
    own.write_bytes(b'theme = "nord"\n[keys]\npause = "x"\n')
    assert read_user_table() == {"theme": "nord", "keys": {"pause": "x"}}
    own.write_bytes(b"theme = nord\n")
    with pytest.raises(BadEntry, match="it is not TOML: Invalid value"):
        read_user_table()
