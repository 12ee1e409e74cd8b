"""Thinning: a recording stays below its limit, keeps what happened, and goes on meanwhile."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.recordings import norms, progress, record

from gradtui.protocol import events as ev
from gradtui.protocol.event_rows import EventWriter
from gradtui.protocol.joined_progress import joined
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.records.recording import Recorder, Recording, thinning
from gradtui.records.recording.extremes import Extremes
from gradtui.records.recording.files import create_new, read_lines
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

NAMES = ["run.jsonl", "run.jsonl.zst"]
STARTED = ev.RunStarted(0.0, 0, "train.py", ("--lr", "1"), 7, "", "", "", None)
HELD = MemoryBytes(1, 2, 3, 4, 5, 6, 21)
ENDED = ev.RunEnded(5000.0, 3999, 0, None)


def events(steps: int) -> Iterator[ev.Event]:
    yield STARTED
    for step in range(1, steps):
        yield progress(step)
        yield norms(step, float("inf") if step in (77, 78, 79) else 1.0 + step)
        if step % 1000 == 0:
            yield ev.PauseChanged(float(step), step, True)
    yield ENDED


@pytest.mark.parametrize("name", NAMES)
def test_recording_stays_limited_and_keeps_events(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning, "_AT_ONCE_S", 10.0)
    many = list(events(4000))
    path = tmp_path / name
    limit = 20_000 if name.endswith("zst") else 300_000
    recorder = Recorder(path, {"script": "train.py"}, lambda _: None, limit)
    largest = 0
    for at in range(0, len(many), 100):
        recorder.take(many[at : at + 100])
        recorder._write_waiting()
        largest = max(largest, path.stat().st_size)
        recorder._sink = recorder._thinning.go_on(recorder._sink)
    recorder._sink.close()
    assert limit / 2 < largest <= limit
    recording = Recording(path)
    found = list(recording.events())
    assert recording.header["script"] == "train.py"
    assert recording.troubles == ()
    counted = [each for each in found if isinstance(each, ev.Progress)]
    assert (sum(each.steps for each in counted), counted[-1].step) == (3999, 3999)
    assert sum(each.micro_steps for each in counted) == 2 * 3999
    assert [each.step for each in found if isinstance(each, ev.PauseChanged)] == [1000, 2000, 3000]
    measured = [each.step for each in found if isinstance(each, ev.GradientsMeasured)]
    assert 77 in measured, "the first norm that is not finite"
    assert measured[-thinning.NEWEST :] == list(range(4000 - thinning.NEWEST, 4000))
    assert len(measured) < 3000
    assert list(tmp_path.iterdir()) == [path]


def thinned(path: Path, newest: int = thinning.NEWEST) -> None:
    one = thinning.thin(path, newest)
    while True:
        try:
            next(one)
        except StopIteration as done:
            done.value.close()
            return


@pytest.mark.parametrize("name", NAMES)
def test_written_while_thinning_is_kept(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    many = list(events(1000))
    recorder = Recorder(path, {"script": "train.py"}, lambda _: None)
    recorder.take(many[:1500])
    recorder._write_waiting()
    one = thinning.thin(path, 10)
    written = surveyed = 1500
    sink = None
    while sink is None:
        try:
            next(one)
        except StopIteration as done:
            sink = done.value
        else:
            surveyed = surveyed if len(list(tmp_path.iterdir())) == 2 else written
            recorder.take(many[written : written + 10])
            recorder._write_waiting()
            written += 10
    recorder._sink.close()
    sink.close()
    assert 1530 < surveyed < written - 30 < len(many) - 30, "the recording has grown in both passes"
    found = list(Recording(path).events())
    assert found[surveyed - written :] == many[surveyed:written]
    counted = [each for each in found if isinstance(each, ev.Progress)]
    assert sum(each.steps for each in counted) == counted[-1].step
    assert len(found) < 1200


def test_memory_does_not_grow_with_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, list(events(8_000)))
    size = path.stat().st_size
    tracemalloc.start()
    try:
        thinned(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20 < 2 * size
    finally:
        tracemalloc.stop()


def test_the_highest_peak_of_each_phase_stays(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    peaks = {(Phase.FORWARD, 33): 9000, (Phase.BACKWARD, 34): 8000}
    many = [
        ev.MemoryMeasured(float(step), step, phase, HELD, peaks.get((phase, step), 200), True, True)
        for step in range(100)
        for phase in (Phase.FORWARD, Phase.BACKWARD)
    ]
    record(path, many)
    thinned(path, 1)
    thinned(path, 1)
    found = list(Recording(path).events())
    assert len(found) < 60
    assert {
        (each.phase, each.step) for each in found if isinstance(each, ev.MemoryMeasured) and each.peak != 200
    } == set(peaks)


def measured(many: list[ev.Event], path: Path, passes: int = 8) -> dict[tuple[str, int], list[tuple[float, int]]]:
    """Value and step by figure and optimizer, in the recording of these events after it was thinned some times."""
    record(path, many)
    for _ in range(passes):
        thinned(path, 1)
    found = list(Recording(path).events())
    state = RunState()
    values: dict[tuple[str, int], list[tuple[float, int]]] = {}
    for event in found:
        apply(state, event)
        if isinstance(event, ev.StepMemoryMeasured):
            values.setdefault(("memory", 0), []).extend((each.peak or 0, each.step) for each in event.totals)
    for optimizer, curves in state.of_optimizers.items():
        values["loss", optimizer] = [(value, step) for step, value in curves.loss]
        values["norm", optimizer] = [(value, step) for step, value in curves.gradient_norm]
    return values


COUNT = 200
LOSSES, NORMS_OF, PEAKS = ([10.0 + (step * 7) % 13 for step in range(COUNT)] for _ in range(3))
for figures, low, high in ((LOSSES, 31, 32), (NORMS_OF, 57, 90), (PEAKS, 101, 150)):
    # An optimizer makes every other step: the extremes of both.
    for at, value in ((low, 1.0), (low + 3, 1.0), (high, 90.0), (high + 3, 90.0)):
        figures[at] = value


def single(step: int) -> list[ev.Event]:
    norm = ev.GradientsMeasured(float(step), step, NORMS_OF[step], None, (1.0, None), optimizer=step % 2)
    loss = ev.StepsMeasured(float(step), step, (ev.StepFigures(step, step % 2, LOSSES[step]),))
    return [norm, loss, of_memory(step, 1)]


def of_memory(first: int, count: int) -> ev.Event:
    totals = tuple(ev.StepTotals(step, 1, None, None, round(PEAKS[step]) << 20) for step in range(first, first + count))
    return ev.StepMemoryMeasured(float(first), first + count - 1, totals)


def together(first: int, count: int) -> list[ev.Event]:
    steps = range(first, first + count)
    losses = tuple(
        ev.StepLosses(optimizer, own, tuple(LOSSES[step] for step in own))
        for optimizer in (0, 1)
        if (own := tuple(step for step in steps if step % 2 == optimizer))
    )
    figures = tuple(ev.StepFigures(step, step % 2, None, total=NORMS_OF[step]) for step in steps)
    return [ev.StepsMeasured(float(first), steps[-1], figures, losses), of_memory(first, count)]


@pytest.mark.parametrize("at_once", [1, 2, 20])
def test_extremes_of_each_optimizer_stay(at_once: int, tmp_path: Path) -> None:
    many = [
        event
        for first in range(0, COUNT, at_once)
        for event in (single(first) if at_once == 1 else together(first, at_once))
    ]
    found = measured(many, tmp_path / "run.jsonl")
    for optimizer in (0, 1):
        own = range(optimizer, COUNT, 2)
        for name, every in (("loss", LOSSES), ("norm", NORMS_OF)):
            assert found[name, optimizer][0] == (every[optimizer], optimizer)
            values = {value for value, _ in found[name, optimizer]}
            assert {min(every[step] for step in own), max(every[step] for step in own)} <= values
    assert {1 << 20, 90 << 20} <= {peak for peak, _ in found["memory", 0]}
    assert all(len(values) < COUNT // 4 for values in found.values())


def test_recording_with_optimizer_for_each_step_is_thinned(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, [ev.StepsMeasured(1.0, step, (ev.StepFigures(step, step, 0.5 + step),)) for step in range(1_000)])
    for _ in range(5):
        thinned(path, 1)
    assert len(list(Recording(path).events())) < 200


@pytest.mark.parametrize(
    "event",
    [
        ev.GradientsMeasured(1.0, 7, 2.0, 0.5, None),
        ev.GradientsMeasured(1.0, 7, 2.0, 0.5, (1.0, float("nan"))),
        ev.GradientsMeasured(1.0, 7, 2.0, 0.5, (1.0, None), 3.0, 1.0, optimizer=4),
        ev.GradientsMeasured(1.0, 7, 2.0, 0.5, (1.0, None), norm_steps=(7, None)),
        ev.GradientsMeasured(1.0, 7, 2.0, 0.5, (1.0, None), norm_steps=(7, None), optimizer=2, loss_of="mean"),
        ev.GradientsMeasured(1.0, 7, None, None, (1.0, None), optimizer=1),
        ev.GradientsMeasured(1.0, 7, float("inf"), 0.5, ()),
    ],
)
def test_loss_and_norm_are_read_without_rows(event: ev.GradientsMeasured) -> None:
    *_, line = EventWriter().lines(event)
    read, whole = Extremes(), Extremes()
    read.take_norms(line.encode(), 3)
    whole.take(ev.StepsMeasured(1.0, 7, (ev.StepFigures(7, event.optimizer, event.loss, total=event.total),)), 3)
    assert read == whole


def test_first_count_stays_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, [progress(step) for step in range(1, 6)])
    thinned(path, 1)
    expected = [progress(1), joined(progress(2), progress(3)), progress(4), progress(5)]
    assert list(Recording(path).events()) == expected


def test_full_disk_ends_thinning_not_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> Any:
        sink = create_new(path)

        def write(_: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        sink.write = write  # type: ignore[method-assign]
        return sink

    monkeypatch.setattr(thinning, "create_new", full)
    monkeypatch.setattr(thinning, "_AT_ONCE_S", 10.0)
    path = tmp_path / "run.jsonl"
    many = list(events(1000))
    emitted: list[ev.Event] = []
    recorder = Recorder(path, {}, emitted.append, limit := 40_000)
    for at in range(0, len(many), 50):
        recorder.take(many[at : at + 50])
        recorder._write_waiting()
        recorder._sink = recorder._thinning.go_on(recorder._sink)
    recorder.start()
    recorder.finish()
    assert emitted == []
    assert list(tmp_path.iterdir()) == [path]
    recording = Recording(path)
    found = list(recording.events())
    assert recording.dropped == sum(isinstance(each, ev.Measurement) for each in many) - sum(
        isinstance(each, ev.Measurement) for each in found
    )
    kept = sum(len(line) + 1 for line, _ in read_lines(path) if b"GradientsMeasured" in line)
    assert kept < limit, "measurements end at the limit"
    assert [each for each in found if not isinstance(each, ev.Measurement)] == [
        each for each in many if not isinstance(each, ev.Measurement)
    ]


def test_exceeded_limit_is_not_retried_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning, "_AT_ONCE_S", 10.0)
    passes: list[int] = []
    thin = thinning.thin
    monkeypatch.setattr(thinning, "thin", lambda path, newest: passes.append(newest) or thin(path, newest))
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path, {}, lambda _: None, 2_000)
    for step in range(1000):
        recorder.take([ev.PauseChanged(float(step), step, step % 2 == 0)])
        recorder._write_waiting()
        recorder._sink = recorder._thinning.go_on(recorder._sink)
    recorder._sink.close()
    assert len(list(Recording(path).events())) == 1000
    assert len(passes) < 200


def test_a_link_to_a_recording_stays_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning, "_AT_ONCE_S", 10.0)
    link, target = tmp_path / "latest.jsonl", tmp_path / "run.jsonl"
    target.touch()
    link.symlink_to(target)
    recorder = Recorder(link, {}, lambda _: None, 20_000)
    recorder.take(list(events(500)))
    recorder._write_waiting()
    before = target.stat().st_size
    recorder._sink = recorder._thinning.go_on(recorder._sink)
    recorder._sink.close()
    assert link.is_symlink()
    assert target.stat().st_size < before


def test_two_counts_become_one_with_their_sums() -> None:
    first = progress(1)
    second = ev.Progress(2.0, 2, 1, 2, 1, (0, 1), (ev.PhaseTime(Phase.FORWARD, 1.0, 2),), 0.25, 30, 40)
    both = joined(first, second)
    assert (both.at, both.step, both.steps, both.micro_steps, both.skipped_steps) == (2.0, 2, 2, 4, 1)
    assert both.optimizer_steps == (1, 1)
    assert both.phases == (ev.PhaseTime(Phase.FORWARD, 1.5, 3), ev.PhaseTime(Phase.BACKWARD, 0.25, 1))
    assert (both.own_seconds, both.norms_every, both.ledger_every) == (0.375, 30, 40)


def test_a_thinned_recording_keeps_seldom_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def metrics(step: int) -> ev.MetricsLogged:
        points = [ev.MetricPoints("loss", "wandb", False, (step,), (float(step),))]
        points += [ev.MetricPoints("val/loss", "wandb", True, (step,), (1.0,))] * (step % 500 == 0)
        return ev.MetricsLogged(float(step), step, tuple(points))

    monkeypatch.setattr(thinning, "_AT_ONCE_S", 10.0)
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path, {"script": "train.py"}, lambda _: None, 300_000)
    for step in range(1, 4001):
        recorder.take([metrics(step)])
    recorder._write_waiting()
    recorder._sink = recorder._thinning.go_on(recorder._sink)
    recorder._sink.close()
    found = [each for each in Recording(path).events() if isinstance(each, ev.MetricsLogged)]
    of_losses = [points.steps[0] for each in found for points in each.points if points.name == "loss"]
    of_validation = [points.steps[0] for each in found for points in each.points if points.name == "val/loss"]
    assert of_validation == [*range(500, 4001, 500)]
    assert 1500 < len(of_losses) < 2500
    assert (of_losses[0], of_losses[-1]) == (1, 4000)
