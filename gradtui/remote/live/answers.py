"""What a live run answers to other processes: from the state that its viewer keeps, and by the commands that they send.

Requests for the summary and for a preview import what makes it: every run imports this module at its start.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from time import monotonic
from typing import TYPE_CHECKING, Any

from gradtui.protocol.codec import BadEntry, from_words
from gradtui.protocol.commands import Command, ShowRank
from gradtui.protocol.event_rows import EventWriter
from gradtui.protocol.events import (
    CommandApplied,
    Event,
    Measurement,
    OperationsRecorded,
    Progress,
    RankEvent,
    RankJoined,
    RankStateTaken,
    ReceiptTaken,
    RulesRun,
)
from gradtui.protocol.json_objects import to_object
from gradtui.remote.serving.follower import Follower
from gradtui.remote.serving.server import Answer, Stream
from gradtui.run.state.changes.objections import in_full, missing_target, objection_to
from gradtui.run.state.findings import Status, by_gravity
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import newest_loss, newest_step
from gradtui.run.state.snapshot import snapshot
from gradtui.run.state.time.time_left import time_left
from gradtui.run.text.effects import counted
from gradtui.run.text.throughput import throughput_words
from gradtui.transport.in_process import CommandQueue, EventQueue

if TYPE_CHECKING:
    from gradtui.remote.live.preview import Previews

_LEFT_OUT = (Measurement, Progress, OperationsRecorded, RulesRun)
"""Events that `tail` does not deliver: the state has what they say."""
Look = Callable[[Callable[[RunState], Any]], Any]
_HISTORY = 10_000
"""Events that `tail` can deliver again. Measurements are not among them: the state has them."""
_IDS_PER_VIEWER = 1 << 32


class LiveRun:
    """Answers requests about one run. Each request has a thread of its own.

    Args:
        look: applies a function to the state of the run, on the thread that owns it.
        events: the events of the run.
        commands: where commands go; None refuses all.
        script: the name of the script.
        rules: the ids of the rules that run; None for those that run by default.
    """

    def __init__(
        self, look: Look, events: EventQueue, commands: CommandQueue | None, script: str, rules: Sequence[str] | None
    ) -> None:
        self._look, self._events, self._commands = look, events, commands
        since = datetime.fromtimestamp(time.time(), timezone.utc).isoformat(timespec="seconds")
        self._identity = {"pid": os.getpid(), "script": script, "since": since}
        self._rules = list(rules) if rules is not None else None
        self._viewers = itertools.count(1)
        self._followers: set[Follower] = set()
        self._history: deque[tuple[int, Event]] = deque(maxlen=_HISTORY)
        self._count = 0
        self._changed = threading.Condition()
        self._is_over = False
        self._shown: int | None = None
        """Of a job: the rank that is shown, as in `JobState`."""
        self._is_chosen = False
        self._generation = 0
        self._previews: Previews | None = None
        self._makes_previews = threading.Lock()
        self._progress_at: float | None = None
        """The time of the newest step or micro-step on the viewer's clock, which goes on while the training is stopped."""
        events.follow(self._keep)

    @property
    def answers(self) -> Mapping[str, Answer]:
        """What the run can be asked, by name."""
        return {
            "status": lambda _: self._look(lambda state: {**self._identity, **_status(state), **self._ages(state)}),
            "state": self._state,
            "findings": self._findings,
            "why": self._why,
            "snapshot": lambda _: self._look(snapshot),
            "attach": self._attach,
            "tail": self._tail,
            "do": self._do,
            "preview": self._preview,
        }

    def _ages(self, state: RunState) -> dict[str, Any]:
        """Return how old the values are, and which ranks are silent and for how long, in seconds."""
        since, job = self._progress_at, state.job
        silent = (
            [(each.rank, each.seconds_silent(job.now)) for each in job.live if each.is_silent]
            if job is not None
            else []
        )
        return {
            "step_age": round(monotonic() - since, 1) if since is not None else None,
            "silent_ranks": [{"rank": rank, "seconds": round(seconds, 1)} for rank, seconds in silent],
        }

    def _state(self, _: Mapping[str, Any]) -> Any:
        from gradtui.records.export.summary import summarise

        return self._look(lambda state: to_object(summarise(state, dropped=self._events.dropped)))

    def _findings(self, _: Mapping[str, Any]) -> Any:
        from gradtui.records.export.summary import finding_entry

        return self._look(lambda state: [to_object(finding_entry(each)) for each in by_gravity(state.findings)])

    def _why(self, request: Mapping[str, Any]) -> Any:
        from gradtui.records.export.explained import explained

        path = request.get("path")
        if not isinstance(path, str):
            raise BadEntry("path is the path of a module or a parameter")
        return self._look(lambda state: explained(state, path, in_full=request.get("all") is True))

    def finish(self) -> None:
        """The run has ended: what goes on ends when all has been sent."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        for follower in list(self._followers):
            follower.finish()

    # Viewers

    def _attach(self, _: Mapping[str, Any]) -> Stream | None:
        follower = Follower()

        def begin(state: RunState) -> dict[str, Any]:
            # On the viewer's thread: no event comes between the state and those that follow.
            if not follower.is_over:
                self._events.follow(follower.take)
            return snapshot(state)

        self._followers.add(follower)
        state = self._look(begin)
        if state is None:
            self._forget(follower)
            return None
        first = {"snapshot": state, "rules": self._rules, "first_id": next(self._viewers) * _IDS_PER_VIEWER}
        return Stream(first, self._lines(follower))

    def _lines(self, follower: Follower) -> Iterator[Sequence[str]]:
        try:
            if self._is_over:
                follower.finish()
            yield from follower.lines()
        finally:
            self._forget(follower)

    def _forget(self, follower: Follower) -> None:
        follower.leave()
        self._events.leave(follower.take)
        self._followers.discard(follower)

    # Events after a cursor

    def _keep(self, events: Sequence[Event]) -> None:
        kept = [each for each in map(self._of_run, events) if not isinstance(each, _LEFT_OUT)]
        # Now it is known which rank is shown.
        if any(map(self._is_progress, events)):
            self._progress_at = monotonic()
        if kept:
            with self._changed:
                for each in kept:
                    self._count += 1
                    self._history.append((self._count, each))
                self._changed.notify_all()

    def _is_progress(self, event: Event) -> bool:
        """Return whether a step or micro-step was made, in a job by the rank that is shown."""
        if isinstance(event, RankEvent) and event.rank == self._shown:
            event = event.event
        return isinstance(event, Progress) and bool(event.steps or event.micro_steps)

    def _of_run(self, event: Event) -> Event:
        """Return an event of a rank as one of the run, if the run shows this rank, or if it is left out anyway."""
        if isinstance(event, RankJoined):
            if event.generation != self._generation:
                self._generation, self._shown, self._is_chosen = event.generation, None, False
            if self._shown is None or (event.rank < self._shown and not self._is_chosen):
                self._shown = event.rank
        if isinstance(event, RankEvent):
            taken = event.event
            if isinstance(taken, RankStateTaken):
                self._shown, self._is_chosen = event.rank, True
                # The state itself is large, and those who ask for events can ask for it.
                command = ShowRank(taken.request, event.rank)
                return CommandApplied(event.at, event.step, command, f"rank {event.rank} is shown", ())
            if event.rank == self._shown or isinstance(event.event, _LEFT_OUT):
                return event.event
        return event

    def _tail(self, request: Mapping[str, Any]) -> Stream:
        since, goes_on = request.get("since", 0), request.get("follow") is True
        if isinstance(since, bool) or not isinstance(since, int) or since < 0:
            raise BadEntry(f"since is a whole number from 0 on, not {since!r}")
        # What has happened so far is in the history once the viewer has applied it.
        self._look(lambda _: None)
        with self._changed:
            if since > self._count:
                raise BadEntry(f"the newest event has the cursor {self._count:,}; {since:,} is of another run")
            oldest = self._history[0][0] if self._history else self._count + 1
        return Stream({"newest": self._count, "lost": max(0, oldest - since - 1)}, self._events_after(since, goes_on))

    def _events_after(self, since: int, goes_on: bool) -> Iterator[Sequence[str]]:
        writer, was_told = EventWriter(), False
        while True:
            with self._changed:
                if goes_on and self._count <= since and not self._is_over:
                    self._changed.wait(1.0)
                found = [(number, event) for number, event in self._history if number > since]
                is_over = self._is_over
            found = [(number, self._as_shown(event)) for number, event in found]
            lines = []
            if found and found[0][0] > since + 1 and goes_on and was_told:
                # The client was so slow that the history no longer has what comes next.
                lines.append(f'{{"lost":{found[0][0] - since - 1}}}')
            was_told = True
            for number, event in found:
                since = number
                lines += [*writer.lines(event), f'{{"cursor":{number}}}']
            if lines or (goes_on and not is_over):
                yield lines or ["{}"]
            if is_over or not goes_on:
                return

    def _as_shown(self, event: Event) -> Event:
        """Return a receipt with the bytes as the run's own log and screen count them, and any other event as it is."""
        if not isinstance(event, ReceiptTaken):
            return event
        return self._look(lambda state: counted(state, event)) or event

    # Commands

    def _preview(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        words = request.get("command")
        if not isinstance(words, dict):
            raise BadEntry("command is an object with a command and its fields")
        complete = self._complete(words)
        if complete is None:
            return None
        with self._makes_previews:
            if self._previews is None:
                from gradtui.remote.live.preview import Previews

                self._previews = Previews(self._look)
        return self._previews.of(_possible(complete))

    def _complete(self, words: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the words of a command with what it leaves out; None if the run does not answer now. Raises `BadEntry`."""
        from_words(in_full(words, None), 0)

        def completed(state: RunState) -> tuple[dict[str, Any] | None, str]:
            # What is raised on the thread of the state is not raised here.
            try:
                return in_full(words, state), ""
            except BadEntry as bad:
                return None, str(bad)

        found = self._look(completed)
        if found is None:
            return None
        complete, objection = found
        if objection:
            raise BadEntry(objection)
        return complete  # type: ignore[no-any-return]

    def _do(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        words, origin, id_ = request.get("command"), request.get("client"), request.get("id")
        if self._commands is None:
            raise BadEntry("this run takes no commands of other processes (--read-only)")
        if not isinstance(words, dict):
            raise BadEntry("command is an object with a command and its fields")
        if not isinstance(origin, str) or not origin.strip() or len(origin) > 80:
            raise BadEntry("client is a name of 1 to 80 characters")
        if id_ is not None and (isinstance(id_, bool) or not isinstance(id_, int) or id_ < _IDS_PER_VIEWER):
            raise BadEntry("id is a whole number from `first_id` on")
        words = self._complete(words)
        if words is None:
            return None
        command = _possible(words)
        if self._is_over:
            raise BadEntry("the run has ended")
        # A viewer has the state itself, and waits for the answer.
        missing = self._look(lambda state: missing_target(state, command)) if id_ is None else None
        if missing is not None:
            return {"refused": missing}
        with self._changed:
            cursor = self._count
        self._commands.reopen()
        sent = self._commands.submit(lambda number: from_words(words, number), origin, id_)
        return {"id": sent.id, "cursor": cursor}


def _possible(words: Mapping[str, Any]) -> Command:
    """Return the command of complete words. Raises `BadEntry` if no run could carry it out."""
    command = from_words(words, 0)
    objection = objection_to(command)
    if objection is not None:
        raise BadEntry(objection)
    return command


def _status(state: RunState) -> dict[str, Any]:
    return {
        "step": newest_step(state),
        "phase": state.phase.value,
        "paused": state.paused,
        "ended": state.ended is not None,
        "steps_per_second": state.steps_per_second,
        "throughput": throughput_words(state),
        "seconds_left": _seconds_left(state),
        "loss": finite(newest_loss(state)[0]),
        "gradient_norm": finite(state.gradient_norm.last),
        "gradient_norm_step": state.gradient_norm.steps[-1] if len(state.gradient_norm) else None,
        "findings": sum(each.is_open and each.status is Status.CONFIRMED for each in state.findings),
    }


def _seconds_left(state: RunState) -> float | None:
    """Return the estimated time until the run ends; None if it is unknown."""
    left = time_left(state)
    return left.seconds if left is not None and not left.is_of_epoch else None


def finite(value: float | None) -> float | str | None:
    """Return a number, or the name of one that is not finite."""
    return value if value is None or value - value == 0 else "NaN" if value != value else f"{value}"
