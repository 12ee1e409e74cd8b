"""GT707: steps take longer and longer."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.step_times import StepPart
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.step_parts import needs_steps
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.small_operations import small_operations
from gradtui.run.text.step_times import PART_WORDS
from gradtui.run.text.units import duration_text

_LONGER, _MIN_S = 1.5, 0.002
_OF_GROWTH = 0.6
"""What one part must have of the growth, or the whole machine may have become slower."""
_APART = 2.0
"""How many times as much as the other parts it must have grown."""
_OCCASIONAL = (StepPart.EVALUATION, StepPart.SAVING, StepPart.GRADTUI)
"""Parts of few steps, or not the script's."""
_EXACT_STEPS = 16
_LEARNS = (StepPart.FORWARD, StepPart.OPTIMIZER)


def check(state: RunState) -> Iterator[Match]:
    """Match steps of which one part has grown, much more than the others."""
    times = state.step_times
    if times is None or _needs(state) is not None:
        return
    parts = [each for each in times.parts if each.part not in _OCCASIONAL]
    before = {each.part: each.early_median or 0.0 for each in parts}
    now = {each.part: each.late_median or 0.0 for each in parts}
    first, newest = sum(before.values()), sum(now.values())
    for each in (before, now):
        # More work in forward is more work in backward.
        each[StepPart.FORWARD] += each.pop(StepPart.BACKWARD)
    part = max(now, key=lambda each: now[each] - before[each])
    small = small_operations(state)
    if part in _LEARNS and small is not None and small.depend_on_reads:
        # Episodes of an agent become longer or shorter as it learns.
        return
    if part is StepPart.FORWARD and state.job is not None and len(state.job.ranks) > 1:
        # In backward ranks wait for each other.
        return
    grown, others = now[part] - before[part], first - before[part]
    ratio_of_others = (newest - now[part]) / others if others > 0 else 1.0
    ratio = now[part] / max(before[part], 1e-6)
    is_longer = newest >= _LONGER * first and newest - first >= _MIN_S
    if is_longer and grown >= _OF_GROWTH * (newest - first) and ratio >= _APART * ratio_of_others:
        yield Match(
            f"a step took {duration_text(first)} at first and takes {duration_text(newest)} now: {_words(part)} "
            f"grown from {duration_text(before[part])} to {duration_text(now[part])}",
            {"seconds_at_first": round(first, 6), "seconds_now": round(newest, 6), "part": part.value},
            is_exact=times.unsampled_steps >= _EXACT_STEPS,
            # A model that is unfrozen step by step, or longer sequences, have more to compute.
            level=Level.NOTE if part in _LEARNS else None,
        )


def _words(part: StepPart) -> str:
    return "forward and backward have" if part is StepPart.FORWARD else f"{PART_WORDS[part]} has"


def _needs(state: RunState) -> str | None:
    times = state.step_times
    is_known = times is not None and all(each.late_median is not None for each in times.parts)
    return needs_steps(state) or (None if is_known else "fewer than 16 steps were timed without a sample")


RULE = Rule(
    "GT707",
    Level.WARNING,
    "steps become slower",
    "something that the loop keeps grows, and the loop visits all of it in each step",
    "look for a list that grows and is read in each step, for graphs that are kept, or for data that becomes larger",
    check,
    explains=frozenset({"GT710"}),
    needs=_needs,
)
