"""Open the files of recordings: plain lines of JSON, or compressed by Zstandard if the name ends in `.zst`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from gradtui.system.atomic_file import OWNER_ONLY
from gradtui.system.descriptors import OwnDescriptor
from gradtui.system.optional_packages import install_words
from gradtui.system.regular_file import open_regular

FORMAT = 1
"""The version of the format. It grows if older versions of gradtui could no longer read the file."""
KEY = "gradtui_recording"
"""The first field of the header, with the version."""
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
"""RFC 8878, section 3.1.1."""
_LEVEL = 3
_CHUNK = 1 << 16
_START = b'{"' + KEY.encode()
"""What a recording begins with."""
MAX_LINE = 1 << 26
"""Bytes: the norms of a model with a million tensors fit. Of a longer line only its start is kept, which is no JSON."""
_KEPT_OF_LONG_LINE = 64


class RecordingError(Exception):
    """A file cannot be written, or is no recording. The message is one line: what, where, and what to do."""


class Sink(Protocol):
    """Takes the lines of a recording."""

    def write(self, data: bytes) -> None:
        """Write bytes. After this they survive the end of the process."""

    def close(self) -> None:
        """End the file."""

    def renamed(self, path: Path) -> None:
        """Note that the file has another name now."""

    @property
    def size(self) -> int:
        """Bytes of the file."""


class _PlainSink:
    def __init__(self, path: Path, flags: int = os.O_TRUNC) -> None:
        flags |= os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = OwnDescriptor(os.open(path, flags, OWNER_ONLY))
        # An earlier recording may have been readable by others.
        with contextlib.suppress(OSError):
            os.chmod(path, OWNER_ONLY)
        self._path = path
        self.size = 0

    def write(self, data: bytes) -> None:
        if not self._file.is_open:
            # The script has closed it, and may have a file of its own under this number.
            self._file = OwnDescriptor(os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
        view = memoryview(data)
        while view:
            written = os.write(self._file.number, view)
            self.size += written
            view = view[written:]

    def close(self) -> None:
        self._file.close()

    def renamed(self, path: Path) -> None:
        self._path = path


class _ZstdSink(_PlainSink):
    def __init__(self, path: Path, flags: int = os.O_TRUNC) -> None:
        self._zstd = _zstandard(path)
        self._compressor = self._zstd.ZstdCompressor(level=_LEVEL).compressobj()
        super().__init__(path, flags)

    def write(self, data: bytes) -> None:
        compressed = self._compressor.compress(data)
        # A block that is flushed can be read even if the file ends behind it.
        super().write(compressed + self._compressor.flush(self._zstd.COMPRESSOBJ_FLUSH_BLOCK))

    def close(self) -> None:
        try:
            super().write(self._compressor.flush(self._zstd.COMPRESSOBJ_FLUSH_FINISH))
        finally:
            super().close()


def _zstandard(path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        raise RecordingError(
            f"{path}: .zst needs the package zstandard: {install_words('zstandard', 'zstd')}"
        ) from None
    return zstandard


def check_writable(path: Path) -> None:
    """Check that `create` can write a recording. The file stays as it is.

    Raises:
        RecordingError: the file cannot be written, or it is there and is no recording.
    """
    if path.suffix == ".zst":
        _zstandard(path)
    try:
        if path.exists() and not path.is_file():
            raise RecordingError(f"cannot write {path}: it is no regular file")
        if path.exists() and path.stat().st_size and not is_recording(path):
            raise RecordingError(f"{path} is there and is no recording; choose another name, or remove it")
    except OSError as error:
        raise RecordingError(f"cannot write {path}: {error.strerror or error}") from None


def create(path: Path) -> Sink:
    """Create the file of a recording, or replace an earlier recording.

    Raises:
        RecordingError: the file cannot be written, or it is there and is no recording.
    """
    check_writable(path)
    try:
        return _sink(path)
    except OSError as error:
        raise RecordingError(f"cannot write {path}: {error.strerror or error}") from None


def create_new(path: Path) -> Sink:
    """Remove an existing file, and create a new one. Another process cannot have created or opened the new file before.

    Raises:
        OSError: the file cannot be written.
    """
    path.unlink(missing_ok=True)
    return _sink(path, os.O_EXCL)


def _sink(path: Path, flags: int = os.O_TRUNC) -> Sink:
    return _ZstdSink(path, flags) if path.suffix == ".zst" else _PlainSink(path, flags)


def is_recording(path: Path) -> bool:
    """Return whether a file begins as recordings do. A file that cannot be decompressed here is judged by its name.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        return begins_as_recording(path)
    except RecordingError:
        return path.suffix == ".zst"


def begins_as_recording(path: Path) -> bool:
    """Return whether a file begins as recordings do, without a look at the rest of it.

    Raises:
        OSError: the file cannot be read.
        RecordingError: it is compressed, and zstandard is missing.
    """
    start = b""
    with open_regular(path) as file:
        for chunk in _content(file, path):
            start += chunk
            if len(start) >= len(_START):
                break
    return start.startswith(_START)


def read_lines(path: Path) -> Iterator[tuple[bytes, bool]]:
    """Yield each line of a recording, and whether it has its end: the last one of a file may be cut off.

    Raises:
        RecordingError: the file cannot be read.
    """
    try:
        with open_regular(path) as file:
            yield from _lines(_content(file, path))
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror or error}") from None


def _content(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield what is in a file, decompressed, in pieces of a bounded size. What follows damaged blocks is left out."""
    is_compressed = file.read(len(_ZSTD_MAGIC)) == _ZSTD_MAGIC
    file.seek(0)
    if not is_compressed:
        while chunk := file.read(_CHUNK):
            yield chunk
        return
    zstd = _zstandard(path)
    stream = zstd.ZstdDecompressor().stream_reader(file, read_size=_CHUNK, read_across_frames=True, closefd=False)
    with contextlib.suppress(zstd.ZstdError):
        while chunk := stream.read1(_CHUNK):
            yield chunk


def _lines(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    begun: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        begun.append(first)
        size += len(first)
        if size > MAX_LINE:
            begun = [begun[0][:_KEPT_OF_LONG_LINE]]
        if others:
            yield b"".join(begun), True
            *whole, last = others
            for line in whole:
                yield line, True
            begun, size = [last], len(last)
    if size:
        yield b"".join(begun), False
