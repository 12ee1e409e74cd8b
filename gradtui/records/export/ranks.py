"""The ranks of a job, as the summary has them. Pure."""

from __future__ import annotations

from gradtui.protocol.summary_ending import Job, Rank
from gradtui.records.export.same_fields import taken
from gradtui.run.state.parts.job import JobState
from gradtui.run.state.ranks.rank_figures import Trouble, rank_rows
from gradtui.run.text import rank_trouble_text, ranks_outcome


def ranks(job: JobState | None) -> tuple[Rank, ...]:
    """Return the processes of a job, those that were restarted first."""
    if job is None:
        return ()
    rows = {id(row.record): row for row in rank_rows(job)}
    found = []
    for each in job.records:
        row = rows.get(id(each))
        found.append(
            taken(
                Rank,
                each,
                steps=each.step,
                left=each.left_reason or None,
                own_step_seconds=row.own_seconds if row is not None else None,
                bytes=row.memory if row is not None else None,
                gradient_norm=row.norm if row is not None else None,
                trouble=row.trouble.name.lower() if row is not None and row.trouble is not Trouble.NONE else None,
                in_words=rank_trouble_text(row) if row is not None else "",
            )
        )
    return tuple(found)


def job(state: JobState | None) -> Job | None:
    """Return the figures of all ranks together."""
    if state is None or not state.ranks:
        return None
    return taken(Job, state, in_words=ranks_outcome(state))
