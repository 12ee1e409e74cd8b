"""Read `[tool.gradtui]` of the project that a script belongs to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from gradtui.protocol.codec import BadEntry

_MAX_BYTES = 16 << 20


def project_file(start: Path) -> Path | None:
    """Return the nearest `pyproject.toml` in a directory or above it; None if there is none."""
    return next((each for folder in (start, *start.parents) if (each := folder / "pyproject.toml").is_file()), None)


def read_table(file: Path, keys: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the entries of `[tool.gradtui]`, each a list of strings; empty if the file has no such table.

    Args:
        file: a `pyproject.toml`.
        keys: the names that the table may have.

    Raises:
        BadEntry: the file cannot be read, or an entry is wrong. The message says which, and what to write.
    """
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_BYTES)
        # A file that does not mention gradtui is another tool's, and may be wrong in any way.
        table = _parsed(content) if b"gradtui" in content else {}
    except OSError as error:
        raise BadEntry(str(error.strerror or error)) from None
    for name in ("tool", "gradtui"):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise BadEntry(f"{name} is no table; write [tool.gradtui]")
    found = {}
    for key, value in table.items():
        if key not in keys:
            raise BadEntry(f"[tool.gradtui] has no entry {key!r}; it may have {' and '.join(keys)}")
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise BadEntry(f'{key} is no list of strings; write {key} = ["GT204", "GT3"]')
        found[key] = tuple(value)
    return found


def _parsed(content: bytes) -> dict[str, Any]:
    # Most projects do not mention gradtui, and the first paint would wait for the import.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        table: dict[str, Any] = tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise BadEntry("it is not a text in UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadEntry(f"it is not TOML: {error}") from None
    return table
