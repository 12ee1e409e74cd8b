"""Write the file that a command names. Training thread, at a step boundary."""

from __future__ import annotations

from pathlib import Path

from gradtui.probe.runtime import CommandRefused
from gradtui.run.text import refusals
from gradtui.system.atomic_file import Fill, WriteFile, write_atomically


def write_named(
    file: str,
    kind: tuple[str, str],
    fill: Fill,
    *,
    directory: str,
    write_file: WriteFile | None,
    replace: bool = True,
    mode: int = 0o666,
) -> str:
    """Write a file completely or not at all, and return its path.

    Args:
        file: the path, relative to `directory` unless absolute; if empty, `write_file` makes a new name.
        kind: the word and the suffix of a new name.
        fill: writes the content.
        directory: see above.
        write_file: see above; None if this run has no directory for files.
        replace: whether a file that is there is replaced.
        mode: the permissions, before the umask.

    Raises:
        CommandRefused: the path is no file, a file is there and stays, the disk has too little room, or it cannot be written.
    """
    try:
        if not file:
            if write_file is None:
                raise CommandRefused(refusals.NO_FILE_NAME)
            return write_file(*kind, fill)
        path = Path(directory, Path(file).expanduser())
        if path.exists() and not path.is_file():
            raise CommandRefused(refusals.not_a_file(path))
        path = path.resolve()
        if path.exists() and not replace:
            raise CommandRefused(refusals.file_is_there(path))
        write_atomically(path, fill, mode=mode)
    except (OSError, RuntimeError, ValueError) as error:
        # torch's writer raises a RuntimeError in place of an OSError of the file. A path with a zero is a ValueError.
        reason = error.__context__ if isinstance(error.__context__, OSError) else error
        raise CommandRefused(refusals.not_written(file or "it", getattr(reason, "strerror", None) or reason)) from None
    return str(path)
