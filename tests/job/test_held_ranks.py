"""Ranks are paused, stepped and resumed with a slow store, and stopped: none stays held, and they make the same changes."""

from __future__ import annotations

import random
import threading

import pytest
from helpers.simulated_job import Job, Rank
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gradtui.probe.commands.boundary import agreement
from gradtui.probe.commands.boundary.agreement import Agreement
from gradtui.probe.commands.boundary.boundary import Boundary
from gradtui.probe.commands.boundary.breakpoints import Breakpoints
from gradtui.probe.runtime import CommandResult, Hold, ranks
from gradtui.protocol.commands import Command, Pause, Resume, RunSteps, SetBreakpoint, SetTrainable
from gradtui.protocol.events import CommandApplied, CommandRejected, PauseChanged, Progress
from gradtui.transport.in_process import CommandQueue

KINDS = (SetTrainable, SetTrainable, Pause, Resume, Resume, RunSteps, SetBreakpoint)
LATE = 4_000
"""Acts in which the ranks train on, once the store answers and no process is stopped any more."""


class _OverError(Exception):
    pass


class HeldRank(Rank):
    """A rank with a boundary that waits. Its training thread runs until it waits for something, and then the test goes on."""

    def __post_init__(self) -> None:
        me = self

        class Queue(CommandQueue):
            def wait(self, seconds: float) -> None:
                me.give_way()

        queue = Queue()
        self.inbox = queue._queue
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._waits = self.is_over = False
        self._boundary = Boundary(
            queue,
            handle=lambda _: CommandResult("done", ()),
            answered=self._answered,
            held=self._held,
            breakpoints=Breakpoints(lambda _: None, lambda _: []),
        )
        self.agreement = Agreement(self._objection, self._answer, self.store, lambda _asked: self.give_way())
        self._boundary.agreement = self.agreement
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def _answered(self, command: Command, answer: CommandResult | str) -> None:
        if isinstance(answer, str):
            self.missed += [self.step] if answer == self.store.given_up else []
            self.outbox.append(CommandRejected(0.0, self.step, command, answer))
            return
        if isinstance(command, SetTrainable):
            self.carried_out.append((self.step, command.id))
        self.outbox.append(CommandApplied(0.0, self.step, command, "done", ()))

    def _held(self, hold: Hold | None) -> None:
        self.outbox.append(PauseChanged(0.0, self.step, hold is not None))

    @property
    def is_waiting(self) -> bool:
        return self._waits

    def goes_on(self) -> None:
        self._turn.release()
        assert self._back.acquire(timeout=60)

    def give_way(self) -> None:
        """Let the test go on, until it is the turn of this rank again."""
        self._back.release()
        self._turn.acquire()
        if self.is_over:
            raise _OverError

    def end(self) -> None:
        """End the thread."""
        self.is_over = True
        self._turn.release()
        self._thread.join(60)

    def _train(self) -> None:
        self._turn.acquire()
        try:
            while not self.is_over:
                self.step += 1
                self.outbox.append(Progress(0.0, self.step, 1, 1, 0, (1,), (), 0.0, 1, 1))
                self._waits = True
                self._boundary.cross(self.step)
                self._waits = False
                self.give_way()
        except _OverError:
            return


class HeldJob(Job):
    """A job whose user pauses and resumes."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance, 2, is_slow=True, has_losses=False, make_rank=HeldRank)

    def command(self) -> Command:
        kind = self.chance.choice(KINDS)
        if kind is SetBreakpoint:
            return SetBreakpoint(self.next_id, "step", self.viewer._newest + self.chance.randrange(2, 9))
        if kind is RunSteps:
            return RunSteps(self.next_id, 2)
        return super().command() if kind is SetTrainable else kind(self.next_id)

    def recover(self) -> None:
        """Let everything work, and the user resume until the ranks train on."""
        self.stopped, self.is_slow = {}, False
        for rank in self.ranks.values():
            rank.store.is_slow = False
            while rank.store.calls:
                rank.store.answer()
        reached = max(rank.step for rank in self.ranks.values()) + 30
        for number in range(LATE):
            self.deliver(self.chance.choice(sorted(self.ranks)))
            self.train()
            self.now += 0.05
            self.send(self.viewer.tick(self.now))
            if number % 100 == 0:
                self.submit(Resume(self.next_id))
            if min(rank.step for rank in self.ranks.values()) > reached:
                return
        steps = {rank.number: (rank.step, rank.is_waiting) for rank in self.ranks.values()}
        raise AssertionError(f"they do not train on: {steps}")

    def end(self) -> None:
        """End all threads."""
        for rank in self.ranks.values():
            assert isinstance(rank, HeldRank)
            rank.end()


@pytest.fixture(autouse=True)
def two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rank gives the store up by itself, and no rank is held alone."""
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    monkeypatch.setattr(agreement, "PIECES", 1 << 30)


def steered(seed: int) -> tuple[HeldRank, HeldRank]:
    """Return the ranks of a job after much has happened, and after they have trained on from there."""
    job = HeldJob(random.Random(seed))
    try:
        for _ in range(1_500):
            job.act()
        job.recover()
    finally:
        job.end()
    first, second = job.ranks.values()
    assert isinstance(first, HeldRank)
    assert isinstance(second, HeldRank)
    return first, second


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1 << 30))
@example(251)
def test_no_rank_stays_held_and_changes_agree(seed: int) -> None:
    both = steered(seed)
    least = min(rank.step - rank.is_waiting for rank in both)
    done = [[each for each in rank.carried_out if each[0] <= least] for rank in both]
    assert done[0] == done[1]
    assert not any(rank.missed for rank in both)


@pytest.mark.parametrize("seed", range(246, 267))
def test_rank_that_misses_pause_is_not_waited_for(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "PIECES", 3)
    steered(seed)
