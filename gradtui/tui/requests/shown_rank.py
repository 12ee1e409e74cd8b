"""The request to show another rank of a job. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.commands import ShowRank
from gradtui.run.state.run_state import RunState
from gradtui.tui.requests.requests import OVER, Make, Refusal


def show_rank(state: RunState, rank: int | None) -> Make | Refusal:
    """Return what makes the command that shows a rank, or why there is none."""
    job = state.job
    if job is None or rank is None:
        return Refusal("This run is one process: there are no other ranks.")
    if state.ended is not None:
        return Refusal(OVER)
    if rank == job.shown:
        return Refusal(f"Rank {rank} is shown already.")
    record = job.ranks.get(rank)
    if record is None or record not in job.live:
        return Refusal(f"Rank {rank} is gone: it can no longer be asked for its state.")
    return lambda id_: ShowRank(id_, rank)


def ranks_to_show(state: RunState) -> Iterator[int]:
    """Yield the ranks that can be shown instead of the present one."""
    if state.job is not None and state.ended is None:
        yield from (record.rank for record in state.job.live if record.rank != state.job.shown)
