"""The table `[tool.gradtui]` of a project."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradtui.protocol.codec import BadEntry
from gradtui.pyproject import project_file, read_table

KEYS = ("select", "ignore")


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
        (b'[tool.gradtui]\nselect = ["GT2", "GT3"]\nignore = []\n', {"select": ("GT2", "GT3"), "ignore": ()}),
    ],
)
def test_tables(content: bytes, table: object, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    assert read_table(tmp_path / "pyproject.toml", KEYS) == table


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"[tool.gradtui", "it is not TOML: "),
        (b"# gradtui \xff\n", "it is not a text in UTF-8"),
        (b"tool = 'gradtui'\n", "tool is no table; write [tool.gradtui]"),
        (b"[tool]\ngradtui = ['GT2']\n", "gradtui is no table; write [tool.gradtui]"),
        (b"[tool.gradtui]\nslect = ['GT2']\n", "[tool.gradtui] has no entry 'slect'; it may have select and ignore"),
        (b"[tool.gradtui]\nselect = 'GT2'\n", 'select is no list of strings; write select = ["GT204", "GT3"]'),
        (b"[tool.gradtui]\nignore = [204]\n", 'ignore is no list of strings; write ignore = ["GT204", "GT3"]'),
    ],
)
def test_bad_tables(content: bytes, part: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    with pytest.raises(BadEntry) as caught:
        read_table(tmp_path / "pyproject.toml", KEYS)
    assert part in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadEntry, match="No such file"):
        read_table(tmp_path / "pyproject.toml", KEYS)
