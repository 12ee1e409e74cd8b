"""The gradient norm of one parameter on the ranks of a job, as facts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gradtui.run.state.job import JobState, NormRange
from gradtui.run.state.rank_norms import is_shard, norms_on_ranks


@dataclass(frozen=True)
class RankNorms:
    """What is known of the norm on several ranks."""

    ranks: int
    is_replica: bool
    """Each rank has the whole parameter."""
    differs: NormRange | None
    step: int | None
    """The newest step that all ranks have measured; None if there is none."""
    at: Mapping[int, float]
    """The norms in that step, by rank."""


def rank_norms(job: JobState | None, index: int) -> RankNorms | None:
    """Return what the norm of a parameter's gradient is on each rank; None if this is no job of several ranks."""
    if job is None or len(job.ranks) < 2:
        return None
    infos = [each.parameters[index] for each in job.ranks.values() if index < len(each.parameters)]
    step, at = norms_on_ranks(job, index) or (None, {})
    return RankNorms(len(job.ranks), not any(map(is_shard, infos)), job.unlike_norms.get(index), step, at)
