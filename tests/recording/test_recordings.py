"""Recordings: what is written is what is read, whatever happens to the file."""

from __future__ import annotations

import errno
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from helpers.recordings import norms, progress

from gradtui.protocol import events as ev
from gradtui.records.recording import FORMAT, Recorder, Recording, RecordingError, check_writable
from gradtui.records.recording import files as files_module
from gradtui.records.recording import recorder as recorder_module

NAMES = ["run.jsonl", "run.jsonl.zst"]


EVENTS: list[ev.Event] = [
    ev.RunStarted(0.0, 0, "train.py", ("--lr", "1"), 7, "", "", "", None),
    ev.TorchImported(0.5, 0, "2.13.0", "cpu", "CPU malloc"),
    *(each for step in range(1, 40) for each in (progress(step), norms(step))),
    ev.RunEnded(50.0, 39, 0, None),
]


def recorded(path: Path, *batches: list[ev.Event], limit: int = 1 << 40) -> list[ev.Event]:
    """Write a recording, and return what its writer emitted."""
    emitted: list[ev.Event] = []
    recorder = Recorder(path, {"script": "train.py"}, emitted.append, limit)
    recorder.start()
    for batch in batches:
        recorder.take(batch)
    recorder.finish()
    return emitted


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_has_the_events_and_the_header(name: str, tmp_path: Path) -> None:
    assert recorded(tmp_path / name, EVENTS[:9], EVENTS[9:]) == []
    recording = Recording(tmp_path / name)
    assert recording.header["script"] == "train.py"
    assert list(recording.events()) == EVENTS
    assert (recording.header["torch"], recording.header["device"]) == ("2.13.0", "cpu")
    assert recording.troubles == ()
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", NAMES)
def test_written_before_kill_can_be_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    recorder = Recorder(path, {}, lambda _: None)
    recorder.take(EVENTS[:5])
    recorder._write_waiting()  # as its thread does, which is killed then
    recording = Recording(path)
    assert list(recording.events()) == EVENTS[:5]
    assert len(recording.troubles) == 1
    recorder._sink.close()


@pytest.mark.parametrize("name", NAMES)
def test_cut_file_is_read_up_to_there(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    recorder = Recorder(path, {}, lambda _: None)
    for at in range(0, len(EVENTS), 5):
        recorder.take(EVENTS[at : at + 5])
        recorder._write_waiting()
    recorder._sink.close()
    whole = path.read_bytes()
    read = []
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        try:
            recording = Recording(path)
        except RecordingError:
            assert size < 200, "the header is cut"
            continue
        events = list(recording.events())
        assert events == EVENTS[: len(events)]
        assert len(recording.troubles) == 1
        read.append(len(events))
    assert read == sorted(read)
    assert len(set(read)) > 4


@pytest.mark.parametrize(
    "content",
    [b"", b"import torch\n", b'{"a": 1}\n', b"\x28\xb5\x2f\xfd garbage", b"\x00" * 1000],
)
def test_another_file_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(content)
    with pytest.raises(
        RecordingError, match=r"train\.py is no recording; gradtui --record FILE SCRIPT writes one"
    ) as raised:
        Recording(path)
    assert "\n" not in str(raised.value)
    if content:
        with pytest.raises(RecordingError, match="is there and is no recording"):
            check_writable(path)
        assert path.read_bytes() == content


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        Recording(tmp_path / "none")
    with pytest.raises(RecordingError, match="directory"):
        Recording(tmp_path)


def test_fifo_and_device_are_refused_immediately(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, Path(os.devnull)):
        with pytest.raises(RecordingError, match="it is no regular file"):
            Recording(path)
        with pytest.raises(RecordingError, match="it is no regular file"):
            check_writable(path)


def test_a_line_without_an_end_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zstandard = pytest.importorskip("zstandard")
    monkeypatch.setattr(files_module, "MAX_LINE", 1 << 20)
    path = tmp_path / "run.zst"
    recorded(path, EVENTS[:3])
    lines = b"".join(line + b"\n" for line, _ in files_module.read_lines(path))
    endless = bytes(1 << 26)
    path.write_bytes(zstandard.ZstdCompressor().compress(lines + endless + b"\n" + lines.splitlines()[-1] + b"\n"))
    assert path.stat().st_size < 10_000
    recording = Recording(path)
    tracemalloc.start()
    try:
        assert list(recording.events()) == [*EVENTS[:3], EVENTS[2]]
        assert tracemalloc.get_traced_memory()[1] < 3 << 20
    finally:
        tracemalloc.stop()
    assert recording.troubles[0] == "1 damaged line left out"
    path.write_bytes(zstandard.ZstdCompressor().compress(endless))
    with pytest.raises(RecordingError, match="is no recording"):
        Recording(path)


def test_file_of_several_frames_is_read_entirely(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    path = tmp_path / "run.jsonl"
    recorded(path, EVENTS)
    whole = path.read_bytes()
    compress = zstandard.ZstdCompressor().compress
    path.write_bytes(compress(whole[:1000]) + compress(whole[1000:]))
    assert list(Recording(path).events()) == EVENTS


def test_damaged_lines_and_newer_events_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorded(path, EVENTS)
    lines = path.read_bytes().splitlines()
    header = json.loads(lines[0]) | {"gradtui_recording": FORMAT + 1}
    lines[0] = json.dumps(header).encode()
    path.write_bytes(b"\n".join([*lines[:4], b'["NewEvent", 1, 2]', b"\xff{", *lines[4:], b""]))
    recording = Recording(path)
    assert list(recording.events()) == EVENTS
    newer, left_out, damaged = recording.troubles
    assert "format 2 is newer than 1" in newer
    assert "1 event " in left_out
    assert "(NewEvent)" in left_out
    assert damaged == "1 damaged line left out"


def test_an_earlier_recording_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorded(path, EVENTS)
    recorded(path, EVENTS[:3])
    assert list(Recording(path).events()) == EVENTS[:3]


def test_full_disk_ends_recording_and_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[ev.Event] = []
    recorder = Recorder(tmp_path / "run.jsonl", {}, emitted.append)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    recorder.take(EVENTS[:4])
    recorder._write_waiting()
    monkeypatch.setattr(os, "write", full)
    recorder.take(EVENTS)
    recorder.start()
    recorder.finish()
    recorder.take(EVENTS)
    (failed,) = emitted
    assert isinstance(failed, ev.ProbeFailed)
    assert (failed.at, failed.step) == (EVENTS[-1].at, EVENTS[-1].step)
    assert failed.part == "recording"
    assert "No space left on device" in failed.error
    assert not recorder._waiting


def test_initially_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RecordingError, match=r"^cannot write .*run\.jsonl: No space left on device$"):
        Recorder(tmp_path / "run.jsonl", {}, lambda _: None)


def test_measurements_are_dropped_and_counted_while_disk_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "_MAX_WAITING", 10)
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path, {}, lambda _: None)
    recorder.take(EVENTS[:20])
    recorder.take(EVENTS[20:])
    recorder.start()
    recorder.finish(dropped=5)
    recording = Recording(path)
    found = list(recording.events())
    assert found == [*EVENTS[:20], *(each for each in EVENTS[20:] if not isinstance(each, ev.Measurement))]
    assert recording.dropped == 5 + len(EVENTS) - len(found)


@pytest.mark.parametrize("name", NAMES)
def test_script_closing_files_loses_none_else(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    recorder = Recorder(path, {}, lambda _: None)
    recorder.take(EVENTS[:5])
    recorder._write_waiting()
    number = recorder._sink._file.number  # type: ignore[attr-defined]
    os.close(number)
    with open(tmp_path / "theirs.txt", "w") as theirs:
        os.dup2(theirs.fileno(), number)
        recorder.take(EVENTS[5:])
        recorder._write_waiting()
        recorder._sink.close()
        os.close(number)
    assert (tmp_path / "theirs.txt").read_text() == ""
    assert list(Recording(path).events()) == EVENTS
