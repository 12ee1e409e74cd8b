"""What a report says about the ranks of a job, as plain data. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gradtui.dataclass import dataclass
from gradtui.protocol.run_summary import RunSummary
from gradtui.protocol.summary_ending import Job, Rank
from gradtui.run.state.ranks.rank_figures import Trouble
from gradtui.run.text import duration_text, number_text, plural, short_bytes

_MAX_RANKS = 128


@dataclass(frozen=True)
class RankContents:
    """The ranks of a job, those in trouble first."""

    ranks: tuple[Rank, ...]
    omitted: int
    outcome: str
    notes: tuple[str, ...]


def rank_contents(run: RunSummary) -> RankContents | None:
    """Return what a report says about the ranks; None if the run is one process."""
    job = run.job
    if job is None:
        return None
    present = [each for each in run.ranks if each.generation == job.generation]
    ranks = sorted(present, key=partial(_order, most=max((each.steps for each in present), default=0)))
    notes = tuple(_notes(job, len(present), len(run.ranks)))
    return RankContents(tuple(ranks[:_MAX_RANKS]), max(0, len(ranks) - _MAX_RANKS), job.in_words, notes)


def rank_cells(rank: Rank) -> tuple[str, ...]:
    """Return its end, steps, own time of a step, memory and gradient norm in words, empty where unknown."""
    return (
        "not ended" if rank.in_words == rank.host else rank.in_words,
        f"{rank.steps:,}",
        duration_text(rank.own_step_seconds) if rank.own_step_seconds is not None else "",
        short_bytes(rank.bytes).strip() if rank.bytes is not None else "",
        number_text(rank.gradient_norm).strip() if rank.gradient_norm is not None else "",
    )


def _order(rank: Rank, most: int) -> tuple[Trouble, int, int]:
    trouble = Trouble[(rank.trouble or "none").upper()]
    return trouble, rank.steps - most if trouble is Trouble.BEHIND else 0, rank.rank


def _notes(job: Job, present: int, ever: int) -> Iterator[str]:
    if job.shown is not None:
        yield f"What trains, the curves, the memory and the changes are those of rank {job.shown}."
    if present < job.size:
        yield f"{plural(job.size - present, 'rank')} of {job.size:,} never joined."
    if ever > present:
        yield f"The launcher restarted the ranks: this is generation {job.generation:,}."
