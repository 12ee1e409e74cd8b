"""GT605: ranks have different models, or have executed different numbers of steps."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.ranks import divergence_match, needs_ranks, open_divergence
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.ranks import rank_names
from gradtui.run.text.units import listed, plural


def check(state: RunState) -> Iterator[Match]:
    """Match models that differ, and ranks that have ended in order after fewer steps than others."""
    models = open_divergence(state, "models")
    if models is not None:
        yield divergence_match(state, models, f"the models differ in {listed(models.names)}", key="models")
    yield from _steps(state)


def _steps(state: RunState) -> Iterator[Match]:
    ranks = state.job.ranks.values() if state.job is not None else ()
    # A rank that has failed, or is gone, is a trouble of its own.
    ended = {each.rank: each.step for each in ranks if each.ended is not None and not each.ended.exit_code}
    most = max((each.step for each in ranks), default=0)
    fewer = {rank: steps for rank, steps in sorted(ended.items()) if steps < most}
    if not fewer:
        return
    least = min(fewer.values())
    extent = f"{least:,}" if least == max(fewer.values()) else f"{least:,} to {max(fewer.values()):,}"
    yield Match(
        f"{rank_names([*fewer])} ended after {extent} steps, and others have executed {plural(most, 'step')}",
        {"ranks": " ".join(map(str, fewer)), "steps": least, "most_steps": most},
        first_step=least,
        is_exact=True,
        remedy="give each rank the same number of batches (DistributedSampler, drop_last=True), or use "
        "torch.distributed.algorithms.join.Join",
        key="steps",
    )


RULE = Rule(
    "GT605",
    Level.WARNING,
    "ranks have different models, or executed different numbers of steps",
    "ranks wait for each other in every collective operation: one that is left alone hangs, or trains on other data than meant",
    "build the model from the same configuration on all ranks",
    check,
    needs=needs_ranks,
)
