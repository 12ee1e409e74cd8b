"""The TOML files with settings: `config.toml` of the user, and `pyproject.toml` of the project that a script belongs to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from gradtui.protocol.bad_entry import BadEntry
from gradtui.protocol.foreign_text import from_toml
from gradtui.system.regular_file import content_of

_MAX_BYTES = 16 << 20


def user_file() -> Path:
    """Return the path of the user's `config.toml`, which need not exist."""
    return user_config_path("gradtui") / "config.toml"


def project_file(start: Path) -> Path | None:
    """Return the nearest `pyproject.toml` in a directory or above it; None if there is none."""
    return next((each for folder in (start, *start.parents) if os.path.isfile(each := folder / "pyproject.toml")), None)


def read_user_table() -> dict[str, Any]:
    """Return the content of the user's `config.toml`; empty if there is no such file.

    Raises:
        BadEntry: the file cannot be read. The message says why.
    """
    try:
        return _parsed(content_of(user_file(), _MAX_BYTES))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadEntry(str(error.strerror or error)) from None


def read_project_table(file: Path) -> dict[str, Any]:
    """Return `[tool.gradtui]` of a `pyproject.toml`; empty if the file has no such table.

    Raises:
        BadEntry: the file cannot be read. The message says why.
    """
    try:
        content = content_of(file, _MAX_BYTES)
    except OSError as error:
        raise BadEntry(str(error.strerror or error)) from None
    # A file that does not mention gradtui is another tool's, and may be wrong in any way.
    table = _parsed(content) if b"gradtui" in content else {}
    for name in ("tool", "gradtui"):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise BadEntry(f"{name} is no table; write [tool.gradtui]")
    return table


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        return from_toml(content)
    except ValueError as error:
        raise BadEntry(str(error)) from None
