"""What a report says about the ranks of a job, as plain data. Pure."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.run.state.job import JobState
from gradtui.run.state.rank_figures import Trouble, rank_rows
from gradtui.run.text import duration_text, number_text, plural, rank_trouble_text, ranks_outcome, short_bytes

_MAX_RANKS = 128


@dataclass(frozen=True)
class RankEntry:
    """A rank when the recording ends. Figures are words; they are empty where unknown."""

    rank: int
    host: str
    steps: int
    own_time: str
    """Of a step without backward, in which ranks also wait for each other."""
    memory: str
    norm: str
    end: str
    is_in_trouble: bool


@dataclass(frozen=True)
class RankContents:
    """The ranks of a job, those in trouble first."""

    ranks: tuple[RankEntry, ...]
    omitted: int
    outcome: str
    notes: tuple[str, ...]


def rank_contents(job: JobState | None) -> RankContents | None:
    """Return what a report says about the ranks; None if the run is one process."""
    if job is None or not job.ranks:
        return None
    rows = rank_rows(job)
    return RankContents(
        tuple(
            RankEntry(
                row.record.rank,
                row.record.host,
                row.record.step,
                duration_text(row.own_seconds) if row.own_seconds is not None else "",
                short_bytes(row.memory).strip() if row.memory is not None else "",
                number_text(row.norm).strip() if row.norm is not None else "",
                _end(rank_trouble_text(row), row.record.host),
                row.trouble is not Trouble.NONE,
            )
            for row in rows[:_MAX_RANKS]
        ),
        max(0, len(rows) - _MAX_RANKS),
        ranks_outcome(job),
        tuple(_notes(job)),
    )


def _end(words: str, host: str) -> str:
    return "not ended" if words == host else words


def _notes(job: JobState) -> list[str]:
    notes = []
    if job.shown is not None:
        notes.append(f"What trains, the curves, the memory and the changes are those of rank {job.shown}.")
    if len(job.ranks) < job.size:
        notes.append(f"{plural(job.size - len(job.ranks), 'rank')} of {job.size:,} never joined.")
    if job.former:
        notes.append(f"The launcher restarted the ranks: this is generation {job.generation:,}.")
    return notes
