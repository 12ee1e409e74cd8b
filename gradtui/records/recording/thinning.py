"""Make a recording smaller: of measurements far back, every other one of each kind goes. What happened, and when, stays.

Steps and times are counted by `Progress` events, so two of them become one with their sums. No event stays in memory, and most
are not even parsed: a recording is larger than what a training has to spare. Thinning takes a small part of the time, because
Python's lock is the training's, too.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Container, Generator, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from time import monotonic

from gradtui.dataclass import dataclass
from gradtui.protocol.event_rows import DECLARES, EventReader
from gradtui.protocol.events import (
    CallOrderMeasured,
    DeviceSampled,
    DeviceTimesMeasured,
    Event,
    GradientFiguresMeasured,
    GradientFlowMeasured,
    GradientHistogramsMeasured,
    GradientsMeasured,
    MemoryMeasured,
    MetricsLogged,
    MicroStepMeasured,
    ModuleTimesMeasured,
    OperationsCounted,
    ParametersClassified,
    PhaseSampled,
    Progress,
    RulesRun,
    SamplesMeasured,
    SavedBytesMeasured,
    StepMemoryMeasured,
    StepMemoryProfiled,
    StepsMeasured,
    StepTimesMeasured,
)
from gradtui.protocol.joined_progress import is_from_the_start, joined
from gradtui.protocol.json_text import to_line
from gradtui.protocol.json_values import NotReadableError, encoder
from gradtui.records.recording.extremes import Extremes
from gradtui.records.recording.fewer_metrics import LoggedValues
from gradtui.records.recording.fewer_steps import halved
from gradtui.records.recording.files import RecordingError, Sink, create_new, read_lines

_THINNED = frozenset(
    kind.__name__.encode()
    for kind in (
        CallOrderMeasured, DeviceSampled, DeviceTimesMeasured, GradientFiguresMeasured, GradientFlowMeasured,
        GradientHistogramsMeasured, GradientsMeasured, MemoryMeasured, MicroStepMeasured, ModuleTimesMeasured,
        OperationsCounted, ParametersClassified, PhaseSampled, RulesRun, SamplesMeasured, SavedBytesMeasured,
        StepMemoryMeasured, StepMemoryProfiled, StepsMeasured, StepTimesMeasured,
    )
)  # fmt: skip
"""Samples, of which a later one says the same about a later step. Measurements of a single moment are no samples."""
_PROGRESS, _MEMORY, _NORMS = (kind.__name__.encode() for kind in (Progress, MemoryMeasured, GradientsMeasured))
_STEPS, _TOTALS = (kind.__name__.encode() for kind in (StepsMeasured, StepMemoryMeasured))
_METRICS = MetricsLogged.__name__.encode()
_DECLARES = DECLARES.encode()
_LINES_AT_ONCE = 128
_AT_ONCE_S = 0.005
"""Seconds of thinning between two writings of the recorder, which come four times a second."""
NEWEST = 64
"""The newest samples of each kind, which stay if that is possible."""


class Thinning:
    """Keeps a recording below its limit, a little at a time."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path, self._limit = path, limit
        self._begins_at = self._first = limit - limit // 8
        """Bytes of the recording at which thinning begins: it also grows while it is thinned."""
        self._newest = NEWEST
        self._pass: Generator[None, None, Sink] | None = None

    def go_on(self, sink: Sink) -> Sink:
        """Take the time that thinning has now, and return what continues the recording."""
        if self._pass is None:
            if sink.size <= self._begins_at:
                return sink
            self._pass = thin(self._path, self._newest)
        until = monotonic() + _AT_ONCE_S
        try:
            while monotonic() < until:
                next(self._pass)
        except StopIteration as done:
            thinned: Sink = done.value
            self._plan(sink.size, thinned.size)
            sink.close()
            return thinned
        except (OSError, RecordingError):
            # The disk has no room for a second file: record until the limit, without thinning.
            self.stop()
            self._begins_at = 1 << 62
        return sink

    def stop(self) -> None:
        """Leave the recording as it is."""
        if self._pass is not None:
            with contextlib.suppress(OSError):
                self._pass.close()
            self._pass = None

    def _plan(self, before: int, after: int) -> None:
        """Decide when the next pass begins, and how much it leaves."""
        self._pass = None
        if after <= self._limit * 2 // 3:
            self._newest, self._begins_at = NEWEST, self._first
        elif self._newest > 1 or after < before * 0.95:
            self._newest, self._begins_at = max(1, self._newest // 2), 0
        else:
            # What is left cannot be thinned.
            self._begins_at = max(self._first, after + self._limit // 8)


def thin(path: Path, newest: int) -> Generator[None, None, Sink]:
    """Replace a recording by a smaller one, a little for each `next`. The recording may grow in between.

    Args:
        path: the recording.
        newest: how many samples of each kind stay in any case, the newest ones.

    Returns:
        What continues the smaller recording.

    Raises:
        OSError: the smaller recording cannot be written. The recording is as it was then.
        RecordingError: the recording cannot be read.
    """
    survey = _Survey()
    for line, _ in read_lines(path):
        survey.take(line)
        if survey.lines % _LINES_AT_ONCE == 0:
            yield
    beside = path.with_name(f".{path.name}.thinned{path.suffix}")
    sink = create_new(beside)
    try:
        waiting: list[bytes] = []
        for kept in _kept(path, survey, newest):
            if kept is not None:
                waiting.append(kept)
            else:
                sink.write(_text(waiting))
                waiting.clear()
                yield
        sink.write(_text(waiting))
        beside.replace(path)
    except BaseException:
        sink.close()
        beside.unlink(missing_ok=True)
        raise
    sink.renamed(path)
    return sink


class _Parser:
    """Makes events of the lines of one recording."""

    def __init__(self) -> None:
        self._reader = EventReader({})

    def event(self, line: bytes) -> Event | None:
        with contextlib.suppress(NotReadableError):
            return self._reader.read(line)
        return None


@dataclass
class _Survey:
    """What is in a recording: how many events of each kind, and the numbers of the lines that a summary names."""

    lines: int = 0
    counts: Counter[bytes] = field(default_factory=Counter)
    logged: LoggedValues = field(default_factory=LoggedValues)
    _extremes: Extremes = field(default_factory=Extremes)
    _not_finite: set[int] = field(default_factory=set)
    _was_finite: bool = True
    _parser: _Parser = field(default_factory=_Parser)

    def take(self, line: bytes) -> None:
        name = _name(line)
        self.counts[name] += 1
        if name == _DECLARES:
            self._parser.event(line)
        elif name in (_MEMORY, _TOTALS, _STEPS):
            self._extremes.take(self._parser.event(line), self.lines)
        elif name == _NORMS:
            self._extremes.take_norms(line, self.lines)
        elif name == _METRICS and isinstance(event := self._parser.event(line), MetricsLogged):
            self.logged.take(event)
        if name in (_NORMS, _STEPS):
            is_finite = b'"NaN"' not in line and b'Infinity"' not in line
            if self._was_finite and not is_finite:
                self._not_finite.add(self.lines)
            self._was_finite = is_finite
        self.lines += 1

    def outstanding(self) -> tuple[set[int], dict[bytes, frozenset[int]]]:
        """Return what stays however far back it is: lines, and by the name of an event with several steps some of these.

        They have the first, smallest and largest values, and norms that are not finite after ones that were.
        """
        steps = {name: self._extremes.steps(of_memory=name == _TOTALS) for name in (_STEPS, _TOTALS)}
        return self._not_finite | self._extremes.lines(), steps


def _kept(path: Path, survey: _Survey, newest: int) -> Iterator[bytes | None]:
    """Yield the lines that stay, and None for each pause. Lines that came after the survey stay as they are."""
    left, parser = Counter(survey.counts), _Parser()
    lines, steps = survey.outstanding()
    declared: set[bytes] = set()
    first: Progress | None = None
    for number, (line, _) in enumerate(read_lines(path)):
        if number % _LINES_AT_ONCE == 0:
            yield None
        name = _name(line) if number < survey.lines else b""
        left[name] -= 1
        if name == _DECLARES:
            if line not in declared:
                declared.add(line)
                parser.event(line)
                yield line
            continue
        is_far_back = left[name] >= newest
        is_other = left[name] % 2 == 0 and number not in lines
        fewer = _fewer(name, line, parser, steps, survey.logged, drops=is_other) if is_far_back else line
        if fewer is None:
            continue
        event = parser.event(line) if name == _PROGRESS and is_far_back else None
        if isinstance(event, Progress) and not is_from_the_start(event):
            if first is None:
                first = event
            else:
                yield _line(joined(first, event))
                first = None
            continue
        if first is not None:
            yield _line(first)
            first = None
        yield fewer
    if first is not None:
        yield _line(first)


def _fewer(
    name: bytes,
    line: bytes,
    parser: _Parser,
    stays: Mapping[bytes, Container[int]],
    logged: LoggedValues,
    *,
    drops: bool,
) -> bytes | None:
    """Return what stays of a line far back; None for nothing. `drops`: it is one of the samples that give way."""
    if name in stays:
        event = parser.event(line)
        fewer = halved(event, stays[name]) if isinstance(event, (StepsMeasured, StepMemoryMeasured)) else None
        if fewer is not None:
            return _line(fewer)
    if name == _METRICS and isinstance(event := parser.event(line), MetricsLogged):
        less = logged.fewer(event, drops_single=drops)
        return _line(less) if less.points else None
    return None if name in _THINNED and drops else line


def _line(event: Event) -> bytes:
    convert = encoder(type(event))  # type: ignore[arg-type]  # a class is hashable
    assert convert is not None
    return to_line([type(event).__name__, *convert(event)]).encode()


def _name(line: bytes) -> bytes:
    """Return the name in a line; nothing for that of a header."""
    return line[2 : line.find(b'"', 2)] if line.startswith(b'["') else b""


def _text(lines: list[bytes]) -> bytes:
    return b"".join(b"%b\n" % line for line in lines)
