"""Training under the probe, in tests: attach it with queues around a piece of training and look at what it told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from gradtui.probe.hooks import install
from gradtui.probe.probe import Probe
from gradtui.probe.runtime import ProbeOptions
from gradtui.probe.samplers.cpu_memory import MemoryCounter, Reading
from gradtui.protocol.commands import Command
from gradtui.protocol.events import (
    CommandApplied,
    CommandRejected,
    Event,
    GradientsMeasured,
    MemoryMeasured,
    PhaseTime,
    ProbeFailed,
    Progress,
    StepFigures,
    StepMemoryMeasured,
    StepsMeasured,
    StepTotals,
)
from gradtui.protocol.schedule import Scheduled
from gradtui.protocol.vocabulary import ParameterState, Phase
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.system.atomic_file import WriteFile
from gradtui.transport.in_process import CommandQueue, EventQueue

E = TypeVar("E", bound=Event)
Make = Callable[[int], Command]
"""Makes a command from its number."""


class CountingAllocator:
    """A total that no other test or thread can disturb: it stays where it is put."""

    name = "test"
    device_type = "cpu"
    exact = True

    def __init__(self) -> None:
        self.total = 1_000_000

    def read(self) -> Reading:
        return Reading(self.total, None)


class ScriptedCommands(CommandQueue):
    """A queue whose person acts only while the run is held: each wait of the held thread makes the next of `acts` happen.

    When nothing is left to do the queue is closed, so that no mistake can hold a test for good.
    """

    def __init__(self, acts: Sequence[Callable[[CommandQueue], object]] = ()) -> None:
        super().__init__()
        self._acts = list(acts)
        self.waits = 0

    def wait(self, seconds: float) -> None:
        self.waits += 1
        if self._acts:
            self._acts.pop(0)(self)
        else:
            self.close()


class Watched:
    """What came of a watched piece of training; `events` and `state` are whole once the context is left."""

    def __init__(self, probe: Probe, queue: EventQueue, commands: CommandQueue) -> None:
        self.probe = probe
        self.commands = commands
        self.phases: list[str] = ["load"]
        """Every phase that was entered or gone back to, in order."""
        self._queue = queue
        self._events: list[Event] = []
        self._state = RunState()
        self._told_from = self._told_to = 0

    @property
    def events(self) -> list[Event]:
        """Everything that was emitted so far, in order."""
        for event in self._queue.drain(1_000_000):
            self._events.append(event)
            apply(self._state, event)
        return self._events

    @property
    def state(self) -> RunState:
        """What a viewer would know now."""
        assert self.events is not None
        return self._state

    def all(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def figures(self) -> list[StepFigures]:
        """What was measured of each step of each optimizer, by step, whichever events it came with."""
        found: list[StepFigures] = []
        for event in self.events:
            if isinstance(event, StepsMeasured):
                found += event.figures
                for each in event.losses:
                    found += [StepFigures(step, each.optimizer, loss) for step, loss in zip(each.steps, each.losses)]
            elif isinstance(event, GradientsMeasured) and (event.total is not None or event.loss is not None):
                found.append(
                    StepFigures(
                        event.step, event.optimizer, event.loss, event.loss_of, event.total, event.before_clipping,
                        event.clipped_at, event.as_applied,
                    )
                )  # fmt: skip
        merged: dict[tuple[int, int], list[StepFigures]] = {}
        for figures in found:
            of_step = merged.setdefault((figures.step, figures.optimizer), [])
            # Loss and norms of one step may come with different events. A skipped step has the number of the one before.
            before = of_step[-1] if of_step else None
            if before is not None and before.loss is None and figures.total is None:
                of_step[-1] = replace(before, loss=figures.loss, loss_of=figures.loss_of)
            elif before is not None and before.total is None and figures.loss is None:
                of_step[-1] = replace(figures, loss=before.loss, loss_of=before.loss_of)
            else:
                of_step.append(figures)
        return sorted((figures for each in merged.values() for figures in each), key=lambda figures: figures.step)

    def losses(self) -> list[tuple[int, float]]:
        """(step, loss) of each step whose loss is known."""
        return [(each.step, each.loss) for each in self.figures() if each.loss is not None]

    def totals(self) -> list[tuple[int, float]]:
        """(step, norm of all gradients) of each step whose norms were read."""
        return [(each.step, each.total) for each in self.figures() if each.total is not None]

    def memory_totals(self) -> list[StepTotals]:
        """The memory totals of each step that has some, in order."""
        return [totals for event in self.all(StepMemoryMeasured) for totals in event.totals]

    def letters(self) -> dict[str, str]:
        """Parameter path -> state letter."""
        tree = self.state.tree
        return {info.path: ParameterState(letter).value for info, letter in zip(tree.parameters, tree.states)}

    def norms(self) -> dict[str, float | None]:
        """Parameter path -> the norm read last."""
        tree = self.state.tree
        assert tree.norms is not None
        return {info.path: norm for info, norm in zip(tree.parameters, tree.norms)}

    def ledgers(self, phase: Phase) -> list[MemoryMeasured]:
        """The ledgers taken at the end of a phase, in order."""
        return [event for event in self.all(MemoryMeasured) if event.phase is phase]

    def listen_to_phases(self) -> None:
        """Note every change of phase from now on."""
        tracker = self.probe.phases
        switch = tracker._switch

        def noted(phase: Phase, now: int, entered: bool) -> None:
            if phase is not tracker.phase:
                self.phases.append(phase.value)
            switch(phase, now, entered)

        tracker._switch = noted  # type: ignore[method-assign]
        take, self._told_from = tracker.take, tracker.since

        def taken(now: int) -> tuple[PhaseTime, ...]:
            self._told_to = now
            return take(now)

        tracker.take = taken  # type: ignore[method-assign]

    def check_that_phases_fill_the_time(self) -> None:
        """The phases told of add up to the time between the first and the last moment they are told for, to the nanosecond.

        Both moments are the tracker's own: nothing here depends on how busy the machine is.
        """
        told = [time for event in self.all(Progress) for time in event.phases]
        assert sum(round(time.seconds * 1e9) for time in told) == self._told_to - self._told_from

    def submit(self, make: Callable[[int], Command]) -> Command:
        """Send a command, as a viewer does."""
        command = self.commands.submit(make)
        self._state.note_submitted(command)
        return command

    def steps(self, number: int, asked: Mapping[int, Make | Sequence[Make]] | None = None) -> Iterator[int]:
        """Yield the indexes of `number` steps, from 0 on. Before a step, send the commands given for its index."""
        for step in range(number):
            makes = (asked or {}).get(step, ())
            for make in makes if isinstance(makes, Sequence) else (makes,):
                self.submit(make)
            yield step

    def answers(self) -> list[str]:
        """What was said to each command, in order: what was done, or why it was refused."""
        answered = (event for event in self.events if isinstance(event, (CommandApplied, CommandRejected)))
        return [event.text if isinstance(event, CommandApplied) else event.reason for event in answered]

    def counts(self) -> tuple[int, int, int, list[int]]:
        """(steps, micro-steps, skipped steps, steps of each optimizer)."""
        state = self.state
        return state.step, state.micro_steps, state.skipped_steps, state.optimizer_steps

    def refusals(self) -> list[str]:
        """Why commands were refused, in order."""
        return [event.reason for event in self.all(CommandRejected)]


UNLIMITED = 100.0
"""With a budget of at least this every step is sampled, however busy the machine is."""


@contextmanager
def watched(
    *,
    budget: float = UNLIMITED,
    stop_after: int | None = None,
    commands: CommandQueue | None = None,
    allocator: MemoryCounter | None = None,
    write_file: WriteFile | None = None,
    may_fail: bool = False,
    schedule: Sequence[Scheduled] = (),
    ranks_agree: bool = False,
    awaited: Sequence[str] = (),
    awaits_times: bool = False,
    return_at_nan: int = 0,
    return_at_spike: int = 0,
) -> Iterator[Watched]:
    """Attach a probe. Without a `budget` every step is sampled; a part of the probe that fails, fails the test."""
    queue = EventQueue(capacity=1_000_000)
    commands = commands if commands is not None else CommandQueue()
    probe = Probe(
        queue.put,
        allocator if allocator is not None else CountingAllocator(),
        ProbeOptions(
            commands,
            budget=budget,
            stop_after=stop_after,
            write_file=write_file,
            schedule=schedule,
            awaited=awaited,
            awaits_times=awaits_times,
            ranks_agree=ranks_agree,
            return_at_nan=return_at_nan,
            return_at_spike=return_at_spike,
        ),
    )
    if budget >= UNLIMITED:
        # Else a sample that takes long on a busy machine would thin out those that follow.
        cadence = probe.step_sampler._cadence
        record = cadence.record_cost
        cadence.record_cost = lambda *_: record(0.0)  # type: ignore[method-assign]
    seen = Watched(probe, queue, commands)
    seen.listen_to_phases()
    install(probe)
    try:
        yield seen
    finally:
        probe.detach()
    failures = seen.all(ProbeFailed)
    assert may_fail or not failures, failures
