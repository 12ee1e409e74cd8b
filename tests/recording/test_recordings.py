"""Recordings: what is written is what is read, whatever happens to the file."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.recording import FORMAT, Recorder, Recording, RecordingError, check_writable
from gradtui.recording import recorder as recorder_module
from gradtui.recording.thinning import join, thinned

NAMES = ["run.jsonl", "run.jsonl.zst"]


def progress(step: int) -> ev.Progress:
    times = (ev.PhaseTime(Phase.FORWARD, 0.5, 1), ev.PhaseTime(Phase.BACKWARD, 0.25, 1))
    return ev.Progress(float(step), step, 1, 2, 0, (1,), times, 0.125, 10, 20)


def norms(step: int, total: float = 1.0) -> ev.GradientsMeasured:
    return ev.GradientsMeasured(float(step), step, total, 0.5, (1.0, None))


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
    assert recording.header["torch"] == "2.13.0"
    assert recording.troubles == ()
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_before_the_process_was_killed_can_be_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    recorder = Recorder(path, {}, lambda _: None)
    recorder.take(EVENTS[:5])
    recorder._write_waiting()  # as its thread does, which is killed then
    recording = Recording(path)
    assert list(recording.events()) == EVENTS[:5]
    assert recording.troubles == ("the recording ends before the run does: the run was killed, or is still running",)
    recorder._sink.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_cut_anywhere_is_read_up_to_there(name: str, tmp_path: Path) -> None:
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


def test_damaged_lines_and_newer_events_are_left_out_and_counted(tmp_path: Path) -> None:
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
    assert left_out == "1 events are left out, because this gradtui does not know them (NewEvent)"
    assert damaged == "1 lines are damaged, and left out"


def test_an_earlier_recording_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorded(path, EVENTS)
    recorded(path, EVENTS[:3])
    assert list(Recording(path).events()) == EVENTS[:3]


def test_a_full_disk_ends_the_recording_and_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[ev.Event] = []
    recorder = Recorder(tmp_path / "run.jsonl", {}, emitted.append)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    recorder.take(EVENTS)
    recorder.start()
    recorder.finish()
    recorder.take(EVENTS)
    (failed,) = emitted
    assert isinstance(failed, ev.ProbeFailed)
    assert failed.part == "recording"
    assert "No space left on device" in failed.error
    assert not recorder._waiting


def test_measurements_are_dropped_and_counted_while_the_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "_MOST_WAITING", 10)
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
def test_a_recording_stays_below_its_limit_and_keeps_what_happened(name: str, tmp_path: Path) -> None:
    many: list[ev.Event] = [EVENTS[0]]
    for step in range(1, 4000):
        many += [progress(step), norms(step, float("inf") if step == 77 else 1.0 + step)]
        many += [ev.PauseChanged(float(step), step, True)] if step % 1000 == 0 else []
    path = tmp_path / name
    limit = 10_000 if name.endswith("zst") else 300_000
    batches = [many[at : at + 200] for at in range(0, len(many), 200)]
    recorder = Recorder(path, {"script": "train.py"}, lambda _: None, limit)
    for batch in [*batches, [EVENTS[-1]]]:
        recorder.take(batch)
        recorder._write_waiting()
        assert path.stat().st_size <= limit
    recorder._sink.close()
    recording = Recording(path)
    found = list(recording.events())
    assert recording.header["script"] == "train.py"
    counted = [each for each in found if isinstance(each, ev.Progress)]
    assert (sum(each.steps for each in counted), counted[-1].step) == (3999, 3999)
    assert sum(each.micro_steps for each in counted) == 2 * 3999
    assert [each.step for each in found if isinstance(each, ev.PauseChanged)] == [1000, 2000, 3000]
    measured = [each.step for each in found if isinstance(each, ev.GradientsMeasured)]
    assert 77 in measured
    assert measured[-64:] == list(range(3936, 4000))
    assert len(measured) < 3000


def test_two_counts_become_one_with_their_sums() -> None:
    first, second = progress(1), progress(2)
    joined = join(first, ev.Progress(2.0, 2, 1, 2, 1, (0, 1), (ev.PhaseTime(Phase.FORWARD, 1.0, 2),), 0.25, 30, 40))
    assert (joined.at, joined.step, joined.steps, joined.micro_steps, joined.skipped_steps) == (2.0, 2, 2, 4, 1)
    assert joined.optimizer_steps == (1, 1)
    assert joined.phases == (ev.PhaseTime(Phase.FORWARD, 1.5, 3), ev.PhaseTime(Phase.BACKWARD, 0.25, 1))
    assert (joined.own_seconds, joined.norms_every, joined.ledger_every) == (0.375, 30, 40)
    assert thinned([first, second]) == [first, second], "the newest stay"


@pytest.mark.parametrize("name", NAMES)
def test_a_script_that_closes_all_files_loses_none_of_its_own(name: str, tmp_path: Path) -> None:
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
