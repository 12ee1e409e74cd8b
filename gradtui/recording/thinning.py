"""Make a recording smaller: of measurements far back, every other one of each kind goes. What happened, and when, stays.

Steps and times are counted by `Progress` events, so two of them become one with their sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradtui.protocol.event_rows import EventReader, EventWriter
from gradtui.protocol.events import (
    DeviceSampled,
    DeviceTimesMeasured,
    Event,
    GradientFiguresMeasured,
    GradientFlowMeasured,
    GradientHistogramsMeasured,
    GradientsMeasured,
    MemoryMeasured,
    MicroStepMeasured,
    ParametersClassified,
    PhaseSampled,
    PhaseTime,
    Progress,
    RulesRun,
    SavedBytesMeasured,
    StepMemoryProfiled,
)
from gradtui.protocol.json_values import NotReadableError, to_line
from gradtui.recording.files import Sink, create, read_lines

_THINNED = (
    DeviceSampled, DeviceTimesMeasured, GradientFiguresMeasured, GradientFlowMeasured, GradientHistogramsMeasured,
    GradientsMeasured, MemoryMeasured, MicroStepMeasured, ParametersClassified, PhaseSampled, RulesRun, SavedBytesMeasured,
    StepMemoryProfiled,
)  # fmt: skip
"""Samples, of which a later one says the same about a later step. Measurements of a single moment are no samples."""
_KEPT = 64
"""The newest of each kind that always stay."""


def thin_file(path: Path, most: int) -> tuple[Sink, EventWriter]:
    """Replace a recording by one of at most `most` bytes, if thinning can achieve that, and return what continues it.

    Raises:
        OSError: the new file cannot be written. The old one is as it was.
    """
    header: dict[str, Any] = {}
    events = _events(path, header)
    beside = path.with_name(f".{path.name}.thinned{path.suffix}")
    while True:
        before = len(events)
        events = thinned(events)
        sink, writer = create(beside), EventWriter()
        lines = [to_line(header), *(line for event in events for line in writer.lines(event))]
        sink.write("".join(f"{line}\n" for line in lines).encode())
        if sink.size <= most or len(events) >= before:
            break
        sink.close()
    beside.replace(path)
    sink.renamed(path)
    return sink, writer


def _events(path: Path, header: dict[str, Any]) -> list[Event]:
    reader, events = EventReader(header), []
    for line, _ in read_lines(path):
        try:
            event = reader.read(line)
        except NotReadableError:
            continue
        if event is not None:
            events.append(event)
    return events


def thinned(events: Sequence[Event]) -> list[Event]:
    """Return events of which every other sample is left out, but for the newest and those that a summary names."""
    left: dict[type, int] = {}
    for event in events:
        left[type(event)] = left.get(type(event), 0) + 1
    extremes = _extremes(events)
    kept: list[Event] = []
    for event in events:
        kind = type(event)
        left[kind] -= 1
        goes = isinstance(event, _THINNED) and left[kind] >= _KEPT and left[kind] % 2 == 0
        if not goes or id(event) in extremes:
            kept.append(event)
    return list(_joined(kept))


def _extremes(events: Iterable[Event]) -> set[int]:
    """Return the identities of the measurements with the highest peak of each phase, and of norms that are not finite."""
    highest: dict[Any, MemoryMeasured] = {}
    kept: set[int] = set()
    for event in events:
        if isinstance(event, MemoryMeasured):
            known = highest.get(event.phase)
            if known is None or (event.peak or 0) > (known.peak or 0):
                highest[event.phase] = event
        elif isinstance(event, GradientsMeasured) and event.total is not None and event.total - event.total != 0:
            kept.add(id(event))
    return kept | {id(event) for event in highest.values()}


def _joined(events: Sequence[Event]) -> Iterator[Event]:
    """Yield the events, with pairs of neighbouring `Progress` in one, but for the newest."""
    waiting: Progress | None = None
    progress_left = sum(isinstance(event, Progress) for event in events)
    for event in events:
        if not isinstance(event, Progress):
            if waiting is not None:
                yield waiting
                waiting = None
            yield event
            continue
        progress_left -= 1
        if waiting is not None:
            yield join(waiting, event)
            waiting = None
        elif progress_left < _KEPT:
            yield event
        else:
            waiting = event
    if waiting is not None:
        yield waiting


def join(first: Progress, second: Progress) -> Progress:
    """Return one event that counts what two counted, one after the other."""
    times: dict[Any, PhaseTime] = {}
    for each in (*first.phases, *second.phases):
        known = times.get(each.phase, PhaseTime(each.phase, 0.0, 0))
        times[each.phase] = PhaseTime(each.phase, known.seconds + each.seconds, known.count + each.count)
    longer, shorter = sorted((first.optimizer_steps, second.optimizer_steps), key=len, reverse=True)
    return replace(
        second,
        steps=first.steps + second.steps,
        micro_steps=first.micro_steps + second.micro_steps,
        skipped_steps=first.skipped_steps + second.skipped_steps,
        optimizer_steps=tuple(steps + (shorter[at] if at < len(shorter) else 0) for at, steps in enumerate(longer)),
        phases=tuple(times.values()),
        own_seconds=first.own_seconds + second.own_seconds,
        exempt_steps=first.exempt_steps + second.exempt_steps,
        exempt_seconds=first.exempt_seconds + second.exempt_seconds,
        own_device_seconds=first.own_device_seconds + second.own_device_seconds,
    )
