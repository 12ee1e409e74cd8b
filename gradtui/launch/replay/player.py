"""The position in a recording: what plays, and from where. It knows no screen.

Opening reads the whole recording, and shows its end. After that any position can be shown: its state is the nearest kept state
before it, to which the events in between are applied, as a live viewer has applied them.
"""

from __future__ import annotations

import bisect
import json
import math
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from time import monotonic

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import Command, Pause, Resume, RunSteps, RunTo, ShowRank, Watch
from gradtui.protocol.events import CommandRejected, Event, EventsEnded, Progress
from gradtui.protocol.json_text import to_line
from gradtui.records.recording import Recording, RecordingError, tracker_of
from gradtui.run.state.run_state import RunState
from gradtui.run.state.snapshot import restored, snapshot
from gradtui.run.viewing import view_again

REFUSAL = "this is a recording; nothing can be changed in it"
NO_OTHER_RANK = "this is a recording; it has the whole state of the rank that was shown"
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Multiples of the recorded time."""
_CUT = "the recording ends before the run does"
_AT_ONCE = 4_000
"""The most events between two redraws: the screen answers keys while a long recording is read or played."""
_SPACING, _MAX_KEPT = 500, 64
"""Events between two kept states, and how many there are: beyond that the spacing doubles."""
_MARKED = {"finding": "!", "not finite": "!", "moved": "!", "out of memory": "!", "ranks": "!", "applied": "◆"}
"""The kinds of entries of the log that are worth a jump, and the signs of the time bar for them."""


@dataclass(frozen=True)
class Mark:
    """A finding or a change in the recording."""

    position: int
    """The number of events up to and including it."""
    sign: str
    text: str


class ReplayPlayer:
    """Gives the events of a recording to one viewer, as `EventQueue` does with those of a live run. UI thread only.

    Args:
        recording: a recording, not read so far.
        clock: returns seconds, for playing.
    """

    def __init__(self, recording: Recording, clock: Callable[[], float] = monotonic) -> None:
        self.recording = recording
        self._clock = clock
        self._rows = recording.rows()
        self._lines: list[bytes] = []
        self._at, self._steps = array("d"), array("q")
        """Of each event: the largest time and step so far."""
        self._first: list[Event] = []
        self._jump: RunState | None = None
        self._kept: dict[int, bytes] = {}
        """By position: compressed snapshots of the state."""
        self._spacing = _SPACING
        self._tick: float | None = None
        self._time = 0.0
        self.position = 0
        """How many events the viewer has applied, or is about to."""
        self.is_loaded = False
        self.is_playing = False
        self.speed = 1.0
        self.marks: Sequence[Mark] = ()
        self._has_marks = False

    # What a viewer asks of the events of a run

    @property
    def dropped(self) -> int:
        """How many measurements the writer of the recording has dropped."""
        return self.recording.dropped

    def drain(self, limit: int = _AT_ONCE) -> list[Event]:
        """Return the next events: all while the recording is being read, later those that are due."""
        first, self._first = self._first, []
        if not self.is_loaded:
            return [*first, *self._read(min(limit, _AT_ONCE))]
        until = min(self._due(), self.position + _AT_ONCE)
        events = [self._event(at) for at in range(self.position, until)]
        self.position = max(self.position, until)
        return [*first, *events, *(self._end_of_a_cut_recording(self.position) if events else ())]

    def seen(self, events: Sequence[Event]) -> None:
        """Do nothing: no other viewer receives the events of this one."""

    def take_state(self) -> RunState | None:
        """Return the state that the viewer must show instead of its own, once after each jump; None if there is none."""
        jump, self._jump = self._jump, None
        return jump

    # Commands

    def submit(self, command: Command) -> None:
        """Play, pause and step as commands of a live run say; refuse all others but those that only ask for measurements."""
        if isinstance(command, (Pause, Resume)):
            self.toggle()
        elif isinstance(command, RunSteps):
            self.move_steps(command.count)
        elif isinstance(command, RunTo):
            self.seek_step(command.step)
        elif not isinstance(command, Watch):
            refusal = NO_OTHER_RANK if isinstance(command, ShowRank) else REFUSAL
            self._first.append(CommandRejected(self.seconds, self.step, command, refusal))

    # Playing

    def toggle(self) -> None:
        """Play, or pause. At the end it plays from the beginning."""
        if self.is_loaded:
            if not self.is_playing and self.position >= len(self._lines):
                self.seek(0)
            self.is_playing = not self.is_playing
            self._tick, self._time = None, self.seconds

    def change_speed(self, by: int) -> None:
        """Take the speed that comes so many places later in `SPEEDS`."""
        at = SPEEDS.index(self.speed) + by
        self.speed = SPEEDS[min(max(at, 0), len(SPEEDS) - 1)]

    # Places

    @property
    def count(self) -> int:
        """The number of events, as far as they were read."""
        return len(self._lines)

    @property
    def step(self) -> int:
        """The executed steps at the position."""
        return self._steps[self.position - 1] if self.position else 0

    @property
    def seconds(self) -> float:
        """The seconds of the run at the position."""
        return self._at[self.position - 1] if self.position else 0.0

    @property
    def last_step(self) -> int:
        """The executed steps at the end."""
        return self._steps[-1] if self._steps else 0

    @property
    def last_seconds(self) -> float:
        """The seconds of the run at the end."""
        return self._at[-1] if self._at else 0.0

    def seek(self, position: int) -> None:
        """Show the state after so many events. Has no effect while the recording is being read."""
        if not self.is_loaded:
            return
        position = min(max(position, 0), len(self._lines))
        if position != self.position:
            self._jump = self.state_at(position)
            self.position = position
        self._tick, self._time = None, self.seconds

    def seek_step(self, step: int) -> None:
        """Show the state when so many steps had been executed, with all that was measured of them."""
        self.seek(bisect.bisect_right(self._steps, step))

    def move_steps(self, by: int) -> None:
        """Go so many steps on, or back; where steps were reported together, to the report that has the wanted one."""
        wanted = self.step + by
        if by > 0:
            at = bisect.bisect_left(self._steps, wanted)
            self.seek(bisect.bisect_right(self._steps, self._steps[at]) if at < len(self._steps) else len(self._steps))
        else:
            self.seek_step(wanted)

    def seek_share(self, share: float) -> None:
        """Show the state after a share of the recorded time, from 0 to 1."""
        self.seek(bisect.bisect_right(self._at, share * self.last_seconds) if share > 0 else 0)

    def move_share(self, by: float) -> None:
        """Go on, or back, by a share of the recorded time."""
        if self.last_seconds > 0:
            self.seek_share(min(1.0, max(0.0, self.seconds / self.last_seconds + by)))

    def next_mark(self, by: int) -> Mark | None:
        """Go to the next finding or change, or with -1 to the one before. Return it; None if there is none."""
        later = [
            mark for mark in self.marks if (mark.position > self.position if by > 0 else mark.position < self.position)
        ]
        if not later or not self.is_loaded:
            return None
        mark = later[0] if by > 0 else later[-1]
        self.seek(mark.position)
        return mark

    def state_at(self, position: int) -> RunState:
        """Return the state after so many events."""
        begin = max((at for at in self._kept if at <= position), default=0)
        state = restored(json.loads(zlib.decompress(self._kept[begin]))) if begin else RunState()
        findings = tracker_of(self.recording)
        for at in range(begin, position):
            view_again(state, findings, self._event(at))
            if (at + 1) % self._spacing == 0:
                self._keep(at + 1, state)
        for event in self._end_of_a_cut_recording(position):
            view_again(state, findings, event)
        return state

    def _keep(self, position: int, state: RunState) -> None:
        if position in self._kept:
            return
        self._kept[position] = zlib.compress(to_line(snapshot(state)).encode(), 1)
        if len(self._kept) > _MAX_KEPT:
            self._spacing *= 2
            self._kept = {at: kept for at, kept in self._kept.items() if at % self._spacing == 0}

    # Reading

    def _read(self, limit: int) -> list[Event]:
        events: list[Event] = []
        for event, line in self._some_rows(limit):
            self._lines.append(line)
            # A damaged recording may have times that are no numbers.
            at = event.at if math.isfinite(event.at) else 0.0
            self._at.append(max(at, self._at[-1]) if self._at else max(at, 0.0))
            step = event.step if isinstance(event, Progress) else 0
            self._steps.append(max(step, self._steps[-1]) if self._steps else step)
            events.append(event)
        self.position = len(self._lines)
        if not events:
            self.is_loaded = True
            return list(self._end_of_a_cut_recording(self.position))
        return events

    def share_of(self, position: int) -> float:
        """Return the share of the recorded time that has passed at a position."""
        return self._at[position - 1] / self.last_seconds if position and self.last_seconds > 0 else 0.0

    def _some_rows(self, limit: int) -> Iterator[tuple[Event, bytes]]:
        try:
            yield from islice(self._rows, limit)
        except RecordingError:
            # What was read can be shown; the recording then counts as cut off.
            return

    def note_marks(self, state: RunState) -> None:
        """Take the findings and changes of the state at the end, once."""
        if not self.is_loaded or self._has_marks:
            return
        self._has_marks = True
        found = ((entry, _MARKED.get(entry.kind)) for entry in state.log)
        self.marks = tuple(
            Mark(bisect.bisect_right(self._at, entry.at), sign, entry.text) for entry, sign in found if sign is not None
        )

    def _event(self, at: int) -> Event:
        return self.recording.again(self._lines[at])

    def _due(self) -> int:
        """Return the number of events that are due now."""
        if not self.is_playing:
            return self.position
        now = self._clock()
        if self._tick is not None:
            self._time += (now - self._tick) * self.speed
        self._tick = now
        due = bisect.bisect_right(self._at, self._time)
        if self.position >= len(self._lines):
            self.is_playing = False
        return max(due, self.position)

    def _end_of_a_cut_recording(self, position: int) -> Iterator[Event]:
        """Yield what a viewer must know at the end of a recording that ends before its run."""
        if position >= len(self._lines) and not self.recording.is_complete:
            yield EventsEnded(self.last_seconds, self.last_step, _CUT)
