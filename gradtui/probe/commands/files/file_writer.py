"""Write the file that a command names. Training thread, at a step boundary."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from gradtui.probe.runtime import CommandRefused
from gradtui.run.text import refusals
from gradtui.system.atomic_file import Fill, WriteFile, write_atomically


class FileWriter:
    """Writes the files of commands completely or not at all, and waits until they are on the disk.

    Args:
        create: creates a file with a new name, for a command that names none; None if this run has no directory for files.
        directory: where relative paths begin.
    """

    def __init__(self, create: WriteFile | None, directory: str) -> None:
        self.directory = directory
        self.create = create

    def write(
        self, file: str, kind: tuple[str, str], fill: Fill, *, replace: bool = True, mode: int = 0o666
    ) -> tuple[str, int]:
        """Write a file, and return its path and its size in bytes.

        Args:
            file: the path; empty for a new name.
            kind: the word and the suffix of a new name.
            fill: writes the content.
            replace: whether a file that is there is replaced.
            mode: the permissions, before the umask.

        Raises:
            CommandRefused: the path is no file, a file is there and stays, the disk has too little room, or it cannot be
                written.
        """

        def synced(stream: BinaryIO) -> None:
            fill(stream)
            stream.flush()
            os.fsync(stream.fileno())

        try:
            path = self._path_of(file, replace=replace) if file else None
            if path is not None:
                write_atomically(path, synced, mode=mode)
            elif self.create is not None:
                path = Path(self.create(*kind, synced))
            else:
                raise CommandRefused(refusals.NO_FILE_NAME)
            return str(path), path.stat().st_size
        except (OSError, RuntimeError, ValueError) as error:
            # torch's writer raises a RuntimeError in place of an OSError of the file. A path with a zero is a ValueError.
            reason = error.__context__ if isinstance(error.__context__, OSError) else error
            why = getattr(reason, "strerror", None) or reason
            raise CommandRefused(refusals.not_written(file or "it", why)) from None

    def _path_of(self, file: str, *, replace: bool) -> Path:
        path = Path(self.directory, Path(file).expanduser())
        if path.exists() and not path.is_file():
            raise CommandRefused(refusals.not_a_file(path))
        path = path.resolve()
        if path.exists() and not replace:
            raise CommandRefused(refusals.file_is_there(path))
        return path
