"""What gradtui itself took: which part the budget governs, what it does not govern, and what was done once. Pure."""

from __future__ import annotations

from gradtui.run.state.parts.cost_record import CostRecord
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import duration_text, plural


def overhead_row(state: RunState) -> str:
    """Return the overhead and its parts as one clause; empty before the second step."""
    cost = state.cost
    if not cost.steps:
        return ""
    parts = [f"hooks and readings of every step {_percent(_share_of_every_step(cost))}"]
    if cost.exempt_steps:
        count = f"{_exempt_steps(cost):,} of {plural(cost.steps, 'step')}"
        parts.insert(0, f"samples without a budget ({count}) {_percent(cost.exempt_share)}")
    if cost.paid_steps:
        parts.insert(0, f"samples within the budget{_budget(state)} {_percent(cost.paid_share)}")
    whole = f"{_percent(cost.share or 0.0)} of the run ({_each(cost)}): {', '.join(parts)}"
    return f"{whole}; set-up {duration_text(cost.setup_seconds)}, once" if cost.setup_seconds else whole


def overhead_lines(state: RunState) -> list[str]:
    """Return the same as sentences, with the reason for each part that no budget governs."""
    cost = state.cost
    if not cost.steps:
        return []
    clock = "" if cost.own_device_seconds is None else " (host time, or device time where that is longer)"
    lines = [f"overhead {_each(cost)}, {_percent(cost.share or 0.0)}{clock}"]
    every = _percent(_share_of_every_step(cost))
    parts = [f"{every} for the hooks and readings of every step, which have no budget"]
    if cost.exempt_steps:
        count = f"{_exempt_steps(cost):,} of {plural(cost.steps, 'step')}"
        why = f"the first steps, those after a change, and one in some thousand ({count})"
        parts.insert(0, f"{_percent(cost.exempt_share)} for samples to which the budget does not apply: {why}")
    if cost.paid_steps:
        parts.insert(0, f"{_percent(cost.paid_share)} for samples within the budget{_budget(state)}")
    lines.append("of these " + "; ".join(parts))
    if cost.setup_seconds:
        lines.append(f"set-up took {duration_text(cost.setup_seconds)}, once: finding the models, and the first step")
    return lines


def _each(cost: CostRecord) -> str:
    return f"{duration_text(cost.own_seconds / cost.steps)} a step"


def _share_of_every_step(cost: CostRecord) -> float:
    return max(0.0, (cost.share or 0.0) - cost.exempt_share - cost.paid_share)


def _exempt_steps(cost: CostRecord) -> int:
    # A sampled step may be counted in the event before it.
    return min(cost.exempt_steps, cost.steps)


def _budget(state: RunState) -> str:
    budget = state.started.budget if state.started is not None else None
    return "" if budget is None else f" ({100 * budget:g} %)"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
