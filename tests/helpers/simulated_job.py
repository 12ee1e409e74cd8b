"""The viewer's proposals and the ranks' agreement together, without processes, threads and clocks.

Messages are late and arrive in any order between processes. Ranks are lost, the launcher starts all of them again, and the
viewer is lost and another one comes, at any moment. Processes are stopped for a while. The store answers late; calls of it
fail, before or after it has written.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from gradtui.probe.commands.boundary.agreement import Agreement
from gradtui.protocol.agreement import Cancellation, Confirmation, Proposal
from gradtui.protocol.commands import Command, SetTrainable
from gradtui.protocol.events import CommandApplied, CommandRejected, Event, Progress, ProposalAnswered
from gradtui.remote.job.proposals import Proposals
from helpers.slow_store import Connection, Values, no_wait


@dataclass
class Rank:
    """A rank of one generation of the job."""

    number: int
    store: Connection
    """Its values are those of its generation."""
    refuses: str
    """The path that this rank refuses, when it is asked."""
    step: int = 0
    inbox: deque[Command] = field(default_factory=deque)
    outbox: deque[Event] = field(default_factory=deque)
    carried_out: list[tuple[int, int]] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    """Steps at which it went on without knowing a decision."""

    def __post_init__(self) -> None:
        self.agreement = Agreement(self._objection, self._answer, self.store, no_wait)

    def _objection(self, command: Command) -> str | None:
        return "no" if getattr(command, "path", None) == self.refuses else None

    def _answer(self, proposal: int, why: str | None) -> None:
        self.outbox.append(ProposalAnswered(0.0, self.step, proposal, why is None, why or ""))

    @property
    def is_waiting(self) -> bool:
        """Whether it waits at the boundary after its newest step."""
        return self.agreement.is_awaited

    def goes_on(self) -> None:
        """Execute a step, or wait on at its boundary; handle what has arrived there."""
        if self.is_waiting:
            self.agreement.wait()
        else:
            self.step += 1
            self.outbox.append(Progress(0.0, self.step, 1, 1, 0, (1,), (), 0.0, 1, 1))
        while self.inbox:
            command = self.inbox.popleft()
            assert isinstance(command, (Proposal, Confirmation, Cancellation))
            self.agreement.take(command, self.step, is_held=False)
        for command, unknown in self.agreement.due(self.step, is_held=False):
            if unknown is not None:
                self.missed.append(self.step)
                self.outbox.append(CommandRejected(0.0, self.step, command, unknown))
                continue
            self.carried_out.append((self.step, command.id))
            self.outbox.append(CommandApplied(0.0, self.step, command, "done", ()))


class Job:
    """The processes of a job, and the messages between them. Those to and from one rank keep their order."""

    def __init__(
        self,
        chance: random.Random,
        size: int,
        *,
        is_slow: bool = False,
        has_losses: bool = True,
        make_rank: Callable[[int, Connection, str], Rank] = Rank,
    ) -> None:
        self.chance, self.size, self.now, self.next_id, self.make_rank = chance, size, 0.0, 1, make_rank
        self.is_slow, self.has_losses = is_slow, has_losses
        """Whether the store is slow and processes are stopped; whether ranks and viewers are lost."""
        self.stopped: dict[int, int] = {}
        """By rank: for how many acts it is stopped."""
        self.ranks: dict[int, Rank] = {}
        self.paths: dict[int, str] = {}
        """What each command names."""
        self.viewer = Proposals()
        self.over: list[list[Rank]] = []
        """The ranks of each generation, also those that were lost."""
        self.to_rank: dict[int, deque[Command]] = {}
        self.start()

    def send(self, sends: list[tuple[int, Command]]) -> None:
        for rank, command in sends:
            if rank in self.to_rank:
                self.to_rank[rank].append(command)

    def start(self) -> None:
        """The launcher starts all ranks, as the next generation."""
        self.send(self.viewer.restarted(self.now))
        values: Values = {}
        self.ranks = {
            number: self.make_rank(number, Connection(values, is_slow=self.is_slow), self.chance.choice("abcx"))
            for number in range(self.size)
        }
        self.over.append(list(self.ranks.values()))
        self.to_rank = {number: deque() for number in self.ranks}
        for number in self.ranks:
            self.viewer.joined(number, self.size)

    def lose_rank(self) -> None:
        number = self.chance.choice(sorted(self.ranks))
        del self.ranks[number]
        self.to_rank.pop(number)
        self.send(self.viewer.left(number, self.now, "its process is gone"))

    def change_viewer(self) -> None:
        """The viewer is lost with all that it has heard and sent, and another one comes."""
        self.viewer = Proposals()
        for number, rank in self.ranks.items():
            rank.outbox.clear()
            if self.chance.random() < 0.5:
                self.to_rank[number].clear()
            self.viewer.joined(number, self.size)

    def act(self) -> None:
        """Let something happen."""
        self.now += 0.05
        choice = self.chance.random()
        if choice < 0.004 and self.has_losses:
            self.lose()
        elif choice < 0.03:
            self.submit(self.command())
        elif choice < 0.034 and self.is_slow:
            self.stopped[self.chance.randrange(self.size)] = self.chance.choice((3, 30, 150))
        elif choice < 0.7 and self.ranks:
            self.deliver(self.chance.choice(sorted(self.ranks)))
        elif len(self.ranks) == self.size:
            self.train()
        self.stopped = {rank: left - 1 for rank, left in self.stopped.items() if left > 1}
        self.send(self.viewer.tick(self.now))

    def command(self) -> Command:
        """Return what the user does."""
        path = self.paths[self.next_id] = self.chance.choice("aabcyyyyyy")
        return SetTrainable(self.next_id, path, False)

    def submit(self, command: Command) -> None:
        """Let the user do something."""
        self.send(self.viewer.submit(command, self.now))
        self.next_id += 1

    def lose(self) -> None:
        """Lose a rank, or the viewer. Without a rank all wait, until the launcher starts them again."""
        if len(self.ranks) < self.size:
            self.start()
        elif self.chance.random() < 0.5:
            self.lose_rank()
        else:
            self.change_viewer()

    def train(self) -> None:
        """Let a rank go on. None is more than a step ahead of another: each waits for the others' gradients."""
        slowest = min(each.step - each.is_waiting for each in self.ranks.values())
        able = [each for each in self.ranks.values() if each.number not in self.stopped]
        able = [each for each in able if each.step - each.is_waiting == slowest]
        if able:
            self.chance.choice(able).goes_on()

    def deliver(self, number: int) -> None:
        """Let the next message to or from a rank, or an answer of the store, arrive."""
        rank, waiting = self.ranks[number], self.to_rank[number]
        if rank.store.calls and self.chance.random() < 0.5:
            if self.chance.random() < 0.8:
                rank.store.answer()
            else:
                rank.store.fail(is_written=self.chance.random() < 0.5)
            return
        if waiting and self.chance.random() < 0.5:
            rank.inbox.append(waiting.popleft())
        elif rank.outbox:
            self.send(self.viewer.take(number, rank.outbox.popleft(), self.now))
