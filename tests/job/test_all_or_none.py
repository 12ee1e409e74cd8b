"""All ranks carry out a command at the same step, or none does: the viewer's proposals and the ranks' agreement together.

Messages are late and arrive in any order between processes. Ranks are lost, the launcher starts all of them again, and the
viewer is lost and another one comes, at any moment.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from gradtui.job.proposals import Proposals
from gradtui.probe.commands.agreement import Agreement
from gradtui.protocol.agreement import Cancellation, Confirmation, Proposal
from gradtui.protocol.commands import Command, SetTrainable
from gradtui.protocol.events import CommandApplied, Event, Progress, ProposalAnswered


@dataclass
class Rank:
    """A rank of one generation of the job. `store` is that of its generation."""

    number: int
    store: dict[str, str]
    refuses: str
    """The path that this rank refuses, when it is asked."""
    step: int = 0
    inbox: deque[Command] = field(default_factory=deque)
    outbox: deque[Event] = field(default_factory=deque)
    carried_out: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.agreement = Agreement(
            self._objection, self._answer, lambda name, value: self.store.setdefault(name, value)
        )

    def _objection(self, command: Command) -> str | None:
        return "no" if getattr(command, "path", None) == self.refuses else None

    def _answer(self, proposal: int, why: str | None) -> None:
        self.outbox.append(ProposalAnswered(0.0, self.step, proposal, why is None, why or ""))

    def cross(self) -> None:
        """Execute a step and handle what has arrived at its boundary."""
        self.step += 1
        self.outbox.append(Progress(0.0, self.step, 1, 1, 0, (1,), (), 0.0, 1, 1))
        while self.inbox:
            command = self.inbox.popleft()
            assert isinstance(command, (Proposal, Confirmation, Cancellation))
            self.agreement.take(command, self.step, is_held=False)
        for command, unknown in self.agreement.due(self.step, is_held=False):
            assert unknown is None
            self.carried_out.append((self.step, command.id))
            self.outbox.append(CommandApplied(0.0, self.step, command, "done", ()))


class Job:
    """The processes of a job, and the messages between them. Those to and from one rank keep their order."""

    def __init__(self, chance: random.Random, size: int) -> None:
        self.chance, self.size, self.now, self.next_id = chance, size, 0.0, 1
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
        store: dict[str, str] = {}
        self.ranks = {number: Rank(number, store, self.chance.choice("abcx")) for number in range(self.size)}
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
        if choice < (0.001 if len(self.ranks) == self.size else 0.05):
            self.start()
        elif choice < 0.002 and self.ranks:
            self.lose_rank()
        elif choice < 0.004:
            self.change_viewer()
        elif choice < 0.03:
            path = self.paths[self.next_id] = self.chance.choice("aabcyyyyyy")
            self.send(self.viewer.submit(SetTrainable(self.next_id, path, False), self.now))
            self.next_id += 1
        elif choice < 0.7 and self.ranks:
            self.deliver(self.chance.choice(sorted(self.ranks)))
        elif len(self.ranks) == self.size:
            # No rank is more than a step ahead of another: each waits for the others' gradients. Without one, all wait.
            slowest = min(each.step for each in self.ranks.values())
            self.chance.choice([each for each in self.ranks.values() if each.step == slowest]).cross()
        self.send(self.viewer.tick(self.now))

    def deliver(self, number: int) -> None:
        """Let the next message to or from a rank arrive."""
        rank, waiting = self.ranks[number], self.to_rank[number]
        if waiting and self.chance.random() < 0.5:
            rank.inbox.append(waiting.popleft())
        elif rank.outbox:
            self.send(self.viewer.take(number, rank.outbox.popleft(), self.now))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 4))
def test_all_ranks_carry_out_the_same_commands_at_the_same_steps(seed: int, size: int) -> None:
    job = Job(random.Random(seed), size)
    for _ in range(1_500):
        job.act()
    for ranks in job.over:
        least = min(rank.step for rank in ranks)
        done = [[each for each in rank.carried_out if each[0] <= least] for rank in ranks]
        assert all(each == done[0] for each in done)
        commands = [command for _, command in done[0]]
        assert len(commands) == len(set(commands))
        assert not {job.paths[command] for command in commands} & {rank.refuses for rank in ranks}


def test_commands_do_get_carried_out() -> None:
    """The test above would also hold for ranks that do nothing."""
    done = 0
    for seed in range(20):
        job = Job(random.Random(seed), 3)
        for _ in range(1_500):
            job.act()
        done += sum(len(rank.carried_out) for ranks in job.over for rank in ranks)
    assert done > 60
