"""GT708: one rank needs longer than the others, and they wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.step_parts import EXACT_STEPS, MIN_LOST_S
from gradtui.run.state.findings import EvidenceValue, Level
from gradtui.run.state.ranks.slow_rank import shares_of_ranks, slow_rank
from gradtui.run.state.run_state import RunState
from gradtui.run.text.step_times import PART_WORDS
from gradtui.run.text.units import duration_text, share_words


def check(state: RunState) -> Iterator[Match]:
    """Match a rank for which the others wait."""
    found = slow_rank(state)
    if found is None or found.lost * found.steps < MIN_LOST_S:
        return
    evidence: dict[str, EvidenceValue] = {
        "rank": found.rank,
        "part": found.part.value,
        "share": round(found.share, 3),
        "seconds_a_step": round(found.lost, 6),
        "seconds": round(found.lost * found.steps, 3),
        "steps": found.steps,
    }
    taken = f"{duration_text(found.lost)} a step, {share_words(found.share)} of it"
    if state.epoch_steps:
        epoch = found.lost * state.epoch_steps
        taken += f", {duration_text(epoch)} an epoch"
        evidence["seconds_an_epoch"] = round(epoch, 3)
    yield Match(
        f"the other ranks wait for rank {found.rank} ({taken}): {PART_WORDS[found.part]} takes "
        f"{duration_text(found.of_part)} there and {duration_text(found.of_others)} elsewhere",
        evidence,
        is_exact=found.steps >= EXACT_STEPS,
    )


def _needs(state: RunState) -> str | None:
    if state.job is None or len(state.job.ranks) < 2:
        return "the run is one process"
    return None if len(shares_of_ranks(state.job)) > 1 else "fewer than ten steps of two ranks were timed"


RULE = Rule(
    "GT708",
    Level.WARNING,
    "one rank makes the others wait",
    "all ranks meet in each step to average gradients, so each step takes as long as that of the slowest rank",
    "give each rank the same work: samples of about the same size, no evaluation, logging or saving on one rank alone",
    check,
    explains=frozenset({"GT701", "GT710"}),
    needs=_needs,
)
