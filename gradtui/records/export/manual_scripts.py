"""The scripts that the manual runs, `demos/` and the examples of the rules: in the wheel beside this package's files, else in
the clone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = Path(__file__).parents[2]
_FOLDERS = {
    "demos": (_PACKAGE / "demos", _PACKAGE.parent / "demos"),
    "docs/rules": (_PACKAGE / "rule_pages", _PACKAGE.parent / "docs" / "rules"),
}
"""Where the manual has them, and where they may lie here."""
_SUFFIXES = (".py", ".toml")


def write_scripts(folder: Path) -> tuple[list[Path], int]:
    """Copy the scripts to where the manual has them below `folder`. Files that are there stay.

    Returns:
        What was written, and how many files were there.

    Raises:
        OSError: a directory cannot be made, or a file cannot be written.
    """
    written, kept = [], 0
    for name, source in _scripts():
        target = folder / name
        if target.exists():
            kept += 1
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        written.append(target)
    return written, kept


def _scripts() -> Iterator[tuple[str, Path]]:
    for name, places in _FOLDERS.items():
        found = next((each for each in places if each.is_dir()), None)
        if found is not None:
            yield from ((f"{name}/{each.name}", each) for each in sorted(found.iterdir()) if each.suffix in _SUFFIXES)
