"""Open the files of recordings: plain lines of JSON, or compressed by Zstandard if the name ends in `.zst`."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from gradtui.descriptors import OwnDescriptor

FORMAT = 1
"""The version of the format. It grows if older versions of gradtui could no longer read the file."""
KEY = "gradtui_recording"
"""The first field of the header, with the version."""
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
"""RFC 8878, section 3.1.1."""
_LEVEL = 3
_CHUNK = 1 << 16
_MAX_LINE = 1 << 28
"""Bytes: the events of a step of a model with a million tensors fit."""


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
    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._file = OwnDescriptor(os.open(path, flags, 0o600))
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
    def __init__(self, path: Path) -> None:
        self._zstd = _zstandard(path)
        self._compressor = self._zstd.ZstdCompressor(level=_LEVEL).compressobj()
        super().__init__(path)

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
        raise RecordingError(f"{path}: .zst needs the package zstandard: pip install 'gradtui[zstd]'") from None
    return zstandard


def check_writable(path: Path) -> None:
    """Check that `create` can write a recording. The file stays as it is.

    Raises:
        RecordingError: the file cannot be written, or it is there and is no recording.
    """
    if path.suffix == ".zst":
        _zstandard(path)
    try:
        if path.is_file() and path.stat().st_size and not is_recording(path):
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
        return _ZstdSink(path) if path.suffix == ".zst" else _PlainSink(path)
    except OSError as error:
        raise RecordingError(f"cannot write {path}: {error.strerror or error}") from None


def is_recording(path: Path) -> bool:
    """Return whether a file begins as recordings do. Raises OSError."""
    with open(path, "rb") as file:
        start = file.read(len(KEY) + 8)
        if start.startswith(_ZSTD_MAGIC):
            file.seek(0)
            try:
                start = next(_lines(_decompressed(file, path)), (b"", False))[0]
            except RecordingError:
                return path.suffix == ".zst"
    return start.startswith(b'{"' + KEY.encode())


def read_lines(path: Path) -> Iterator[tuple[bytes, bool]]:
    """Yield each line of a recording, and whether it has its end: the last one of a file may be cut off.

    Raises:
        RecordingError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            start = file.read(len(_ZSTD_MAGIC))
            file.seek(0)
            yield from _lines(_decompressed(file, path) if start == _ZSTD_MAGIC else _chunks(file))
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror or error}") from None


def _chunks(file: io.BufferedReader) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def _decompressed(file: io.BufferedReader, path: Path) -> Iterator[bytes]:
    zstd = _zstandard(path)
    decompressor = zstd.ZstdDecompressor().decompressobj()
    for chunk in _chunks(file):
        try:
            yield decompressor.decompress(chunk)
        except zstd.ZstdError:
            # What came before can be read.
            yield b"\n"
            return
        if decompressor.eof:
            return


def _lines(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    rest = b""
    for chunk in chunks:
        *lines, last = chunk.split(b"\n")
        if lines:
            yield rest + lines[0], True
            for line in lines[1:]:
                yield line, True
            rest = last
        else:
            rest += last
        if len(rest) > _MAX_LINE:
            return
    if rest:
        yield rest, False
