"""The state of a job's viewer, built by the events of simulated ranks. Their parameters are `a.weight` and `a.bias`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import BufferInfo, Phase
from gradtui.run.reducer import apply
from gradtui.run.state.parts.job import Divergence, JobState, Kind
from gradtui.run.state.run_state import RunState
from helpers.events import of_rank, rank_joined
from helpers.fakes import Node, found, started

PATHS = ("a.weight", "a.bias")
BUFFER = BufferInfo("a.mean", (4,), "float32", 4, 16, 1, True)


def model(*paths: str) -> ev.ModelsFound:
    """The models of a rank: the module `a` with a parameter of four elements for each path, and the buffer `a.mean`."""
    names = [path.partition(".")[2] for path in paths or PATHS]
    net = Node("Net", "Net", (), (Node("a", "Layer", tuple((name, (4,)) for name in names)),))
    return replace(found(net), buffers=(BUFFER,), listing=1)


def sharded(held: int) -> ev.ModelsFound:
    """The same models; of `a.weight` a rank has `held` elements."""
    whole = model()
    first, second = whole.parameters
    return replace(whole, parameters=(replace(first, local_count=held), second))


def ranks_join(ranks: int, found: ev.ModelsFound) -> Iterator[ev.Event]:
    """Yield the events of a launcher whose ranks join, each with these models."""
    yield started()
    for rank in range(ranks):
        yield rank_joined(rank, ranks)
        yield of_rank(rank, found)


class Job:
    """Ranks whose events reach one viewer in the order of the calls."""

    def __init__(self, ranks: int = 2, *, joined: Iterable[int] | None = None, generation: int = 0) -> None:
        self.size, self.generation = ranks, generation
        self.state = RunState()
        for rank in range(ranks) if joined is None else joined:
            self.join(rank)

    @property
    def job(self) -> JobState:
        assert self.state.job is not None
        return self.state.job

    @property
    def texts(self) -> list[str]:
        """What the log says about the ranks."""
        return [entry.text for entry in self.state.log if entry.kind == "ranks"]

    def divergence(self, kind: Kind) -> Divergence:
        return self.job.divergences[kind]

    def join(self, rank: int, found: ev.ModelsFound | None = None) -> None:
        """Let a rank join, with its models."""
        apply(self.state, rank_joined(rank, self.size, generation=self.generation))
        self.event(rank, found or model())

    def event(self, rank: int, event: ev.Event) -> ev.RankEvent:
        """Let an event of a rank arrive; return it as the viewer gets it."""
        received = ev.RankEvent(max(event.at, 1.0), event.step, rank, self.generation, event)
        apply(self.state, received)
        return received

    def check(self, rank: int, step: int, **values: Any) -> ev.RankEvent:
        """Let a rank measure what all must have in common: the same as the others, but for `values`."""
        usual: dict[str, Any] = {
            "trainable": "11",
            "owned": "11",
            "rates": ((0.1,),),
            "checksums": (10 * step, 10 * step + 1),
            "listing": 1,
        }
        return self.event(rank, ev.ReplicasMeasured(1.0, step, **{**usual, **values}))

    def check_all(self, step: int, *, but: int | None = None, **values: Any) -> None:
        """Let all ranks measure; the rank `but` has other values."""
        for rank in sorted(self.job.ranks):
            self.check(rank, step, **(values if rank == but else {}))

    def progress(self, rank: int, step: int, *, steps: int = 1, at: float = 1.0, **seconds: float) -> None:
        """Let a rank report `steps` steps up to `step`; `seconds` by phase are those of all of them."""
        times = tuple(ev.PhaseTime(Phase(phase), spent, 1) for phase, spent in seconds.items())
        self.event(rank, ev.Progress(at, step, steps, steps, 0, (steps,), times, 0.0, 1, 1))

    def norms(self, rank: int, step: int, *norms: float | None) -> None:
        """Let a rank report the norms of its parameters."""
        total = sum(norm * norm for norm in norms if norm is not None) ** 0.5
        self.event(rank, ev.GradientsMeasured(1.0, step, total, 0.5, norms, listing=1))

    def end(self, rank: int, step: int, code: int = 0, error: str | None = None, *, at: float = 9.0) -> ev.RankEvent:
        """Let the run of a rank end."""
        return self.event(rank, ev.RunEnded(at, step, code, error))

    def blame(self, *failures: tuple[int, int, str]) -> None:
        """Let the launcher say which ranks have failed: number, exit code, and message."""
        apply(self.state, ev.RanksFailed(10.0, 0, tuple(ev.RankFailure(*each) for each in failures)))

    def leave(self, rank: int, reason: str = "", *, is_over: bool | None = True, at: float = 9.0) -> None:
        """Let the connection to a rank end, by default with its process."""
        apply(self.state, ev.RankLeft(at, 0, rank, self.generation, reason, is_over))

    def restart(self) -> None:
        """Let the launcher start all ranks again."""
        self.generation += 1
        for rank in range(self.size):
            self.join(rank)


def shards(held: Sequence[int]) -> Job:
    """Return a job in which each rank has this many elements of `a.weight`."""
    job = Job(len(held), joined=())
    for rank, count in enumerate(held):
        job.join(rank, sharded(count))
    return job
