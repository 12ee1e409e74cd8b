"""The formats by their names: what each of them needs, and how it is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gradtui.dataclass import dataclass
from gradtui.records.export.formats import csv_files, new_files, parquet_file, tensorboard_file, trace_file
from gradtui.records.export.formats.cells import started_at
from gradtui.records.export.formats.rows import rows
from gradtui.records.recording import Recording


@dataclass(frozen=True)
class Format:
    """A format in which a recording can be written."""

    check: Callable[[Recording, Path, bool], object]
    """Check that it can be written to this path, and (the flag) whether files that are there may be replaced. Raises
    ExportError."""
    write: Callable[[Recording, Path, bool], int]
    """Write it, and return the number of rows or entries. Raises ExportError and, if the recording cannot be
    read, RecordingError. No file is left then."""


def _check_csv(_recording: Recording, folder: Path, replace: bool) -> None:
    new_files.check_folder(folder, csv_files.NAMES, replace=replace)


def _write_csv(recording: Recording, folder: Path, replace: bool) -> int:
    return new_files.write_folder(
        folder, csv_files.NAMES, lambda beside: csv_files.write_csv(rows(recording), beside), replace=replace
    )


def _check_parquet(_recording: Recording, path: Path, replace: bool) -> None:
    parquet_file.require_parquet()
    new_files.check_file(path, replace=replace)


def _write_parquet(recording: Recording, path: Path, replace: bool) -> int:
    return new_files.write_file(
        path, lambda file: parquet_file.write_parquet(rows(recording), recording.header, file), replace=replace
    )


def _check_tensorboard(recording: Recording, folder: Path, replace: bool) -> None:
    tensorboard_file.require_tensorboard()
    new_files.check_folder(folder, [tensorboard_file.file_name(started_at(recording.header))], replace=replace)


def _write_tensorboard(recording: Recording, folder: Path, replace: bool) -> int:
    return new_files.write_folder(
        folder,
        [tensorboard_file.file_name(started_at(recording.header))],
        lambda beside: tensorboard_file.write_tensorboard(
            rows(recording, tensorboard_file.TABLES), recording.header, beside
        ),
        replace=replace,
    )


def _check_trace(_recording: Recording, path: Path, replace: bool) -> None:
    new_files.check_file(path, replace=replace)


def _write_trace(recording: Recording, path: Path, replace: bool) -> int:
    made = rows(recording, trace_file.TABLES)
    return new_files.write_file(
        path, lambda file: trace_file.write_trace(made, recording.header, path, file), replace=replace
    )


FORMATS = {
    "csv": Format(_check_csv, _write_csv),
    "parquet": Format(_check_parquet, _write_parquet),
    "tensorboard": Format(_check_tensorboard, _write_tensorboard),
    "trace": Format(_check_trace, _write_trace),
}
