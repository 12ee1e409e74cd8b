"""Files that an export creates: none of them replaces a file unless the user says so, and after an error none is left."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from gradtui.system.atomic_file import write_atomically


class ExportError(Exception):
    """A format cannot be written. The message is one line: what, and what to do."""


def check_file(path: Path, *, replace: bool) -> None:
    """Check that a new file can have this name.

    Raises:
        ExportError: it cannot.
    """
    if os.path.isdir(path):
        raise ExportError(f"{path} is a directory")
    if os.path.exists(path) and not os.path.isfile(path):
        raise ExportError(f"{path} is no file")
    if os.path.exists(path) and not replace:
        raise ExportError(f"{path} is there; choose another name, or give --force")
    if not os.path.isdir(path.absolute().parent):
        raise ExportError(f"there is no directory {path.parent}")


def check_folder(folder: Path, names: Sequence[str], *, replace: bool) -> None:
    """Check that a directory is there, or can be, and that new files in it can have these names.

    Raises:
        ExportError: it cannot.
    """
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ExportError(f"{folder} is no directory")
    if not os.path.isdir(folder.absolute().parent):
        raise ExportError(f"there is no directory {folder.parent}")
    for name in names if os.path.exists(folder) else ():
        check_file(folder / name, replace=replace)


def write_file(path: Path, fill: Callable[[BinaryIO], int], *, replace: bool) -> int:
    """Write a file with what `fill` writes, and return what it returns.

    Raises:
        ExportError: as `check_file` does, and if the file cannot be written. Also raises what `fill` raises, except OSError.
    """
    check_file(path, replace=replace)
    counts: list[int] = []
    with _named_errors(path):
        write_atomically(path.resolve(), lambda file: counts.append(fill(file)))
    return counts[0]


def write_folder(folder: Path, names: Sequence[str], fill: Callable[[Path], int], *, replace: bool) -> int:
    """Write files into a directory, which is created if it is not there, and return what `fill` returns.

    Args:
        folder: the directory.
        names: names of files that will be written, to find out early that one is there.
        fill: writes files into another directory, or directories in it, from which all are moved when they are complete.
        replace: files with these names may be replaced. All others stay.

    Raises:
        ExportError: as `check_folder` does, and if a file cannot be written. Also raises what `fill` raises, except OSError.
    """
    check_folder(folder, names, replace=replace)
    is_new = not os.path.exists(folder)
    with _named_errors(folder), _temporary_folder(folder.parent if is_new else folder) as beside:
        count = fill(beside)
        made = sorted(path.relative_to(beside) for path in beside.rglob("*") if path.is_file())
        check_folder(folder, [str(path) for path in made], replace=replace)
        if is_new:
            beside.chmod(_mode_of_new_folders(beside))
            beside.rename(folder)
        else:
            for path in made:
                (folder / path.parent).mkdir(parents=True, exist_ok=True)
                os.replace(beside / path, folder / path)
    return count


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror or error}") from None


@contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=".gradtui-export.", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _mode_of_new_folders(folder: Path) -> int:
    """Return the permissions that the kernel gives a new directory (`mkdtemp` gives others). Python cannot read the umask."""
    probe = folder / "mode"
    probe.mkdir()
    mode = probe.stat().st_mode & 0o777
    probe.rmdir()
    return mode
