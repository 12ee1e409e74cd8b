"""What differs between the ranks of a job, as the rules GT6 say it. Pure."""

from __future__ import annotations

from gradtui.run.diagnostics.rule import Match
from gradtui.run.state.findings import EvidenceValue, Level
from gradtui.run.state.parts.job import Divergence, Kind
from gradtui.run.state.run_state import RunState
from gradtui.run.text import between_ranks, rank_names, since_text

_MAX_PATHS = 200


def open_divergence(state: RunState, kind: Kind) -> Divergence | None:
    """Return what of this kind differs between ranks now; None if nothing does."""
    found = state.job.divergences.get(kind) if state.job is not None else None
    return found if found is not None and found.over_step is None else None


def has_come_before(state: RunState, kind: Kind, step: int) -> bool:
    """Return whether ranks were found to differ in this before `step`."""
    found = open_divergence(state, kind)
    return found is not None and found.step < step


def needs_ranks(state: RunState) -> str | None:
    """Return why no rule about several ranks could match; None if they were compared."""
    if state.job is None or len(state.job.ranks) < 2:
        return "the run is one process"
    return None if state.job.compared_step else "no step was compared between ranks"


def trains_one_model(state: RunState) -> bool:
    """Return whether ranks hold copies or parts of the same parameters. Else each may train a model of its own."""
    job = state.job
    if job is None:
        return False
    return job.has_replicas or any(
        each.local_count is not None for rank in job.ranks.values() for each in rank.parameters
    )


def divergence_match(
    state: RunState,
    divergence: Divergence,
    what: str,
    *,
    key: str = "",
    has_paths: bool = True,
    explains: frozenset[str] | None = None,
) -> Match:
    """Return a match that says what differs, between which ranks, and since when: `what` is the beginning of the sentence.

    Without `has_paths` the names are not those of parameters.
    """
    words = values_text(divergence)
    evidence: dict[str, EvidenceValue] = {
        "names": len(divergence.names),
        "ranks": " ".join(map(str, divergence.ranks)),
        "compared_ranks": len(divergence.compared),
        "equal_step": divergence.equal_step,
        "first_step": divergence.step,
        "last_step": divergence.last_step,
    }
    return Match(
        f"{what} {between_ranks(divergence)} {since_text(divergence)}{f': {words}' if words else ''}",
        evidence,
        divergence.names[:_MAX_PATHS] if has_paths else (),
        first_step=divergence.step,
        is_exact=True,
        level=None if trains_one_model(state) else Level.NOTE,
        key=key,
        explains=explains,
    )


def values_text(divergence: Divergence) -> str:
    """Return what the first name is on which ranks: `trainable on rank 0, frozen on ranks 1, 2`; empty without words for it."""
    ranks: dict[str, list[int]] = {}
    for rank, value in zip(divergence.compared, divergence.values):
        ranks.setdefault(value, []).append(rank)
    texts = [f"{value} on {rank_names(where)}" for value, where in ranks.items()]
    return ", ".join(texts)
