"""Describe what return policies do, and why they give up. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradtui.protocol.batches import NamedBatch
from gradtui.protocol.events import ReturnsEnded
from gradtui.run.state.parts.kept_states import FINITE
from gradtui.run.state.run_state import RunState
from gradtui.run.text.batches import in_brackets
from gradtui.run.text.units import plural

NO_STATE_BEFORE = "no state from before it is kept"
WITHOUT = "the run continues without returns"


def bad_value(name: str, value: float, step: int, batches: Sequence[NamedBatch]) -> str:
    """Return `NaN in the loss of step 51 (batch 3 of 10 of epoch 1: samples 4, 7)`."""
    return f"{'NaN' if math.isnan(value) else 'Inf'} in the {name} of step {step:,}{in_brackets(batches)}"


def bad_values(name: str, step: int) -> str:
    """Return `NaN or Inf in the weights after step 50`."""
    return f"NaN or Inf in the {name} after step {step:,}"


def spike_words(name: str, value: float, usual: float, step: int, batches: Sequence[NamedBatch]) -> str:
    """Return `loss spike of 48.2 at step 41 (batch 41 of 100 of epoch 1: samples 4, 7), usual is 0.25`."""
    return f"{name} spike of {value:.4g} at step {step:,}{in_brackets(batches)}, usual is {usual:.4g}"


def return_words(fault: str, number: int, limit: int, made: int) -> str:
    """Return why the run returns, and which of how many returns without progress this is. `made`: of how many of the run."""
    in_all = f" in a row, {made:,} in all" if made > number else ""
    return f"{fault}, return {number:,} of {limit:,}{in_all}"


def again(fault: str, made: int, hint: str) -> str:
    """Return why a policy gives up after its last return, with what the cause may be."""
    return f"{fault}, after {plural(made, 'return')}{hint}"


def common_words(samples: Sequence[int]) -> str:
    """Return that these samples are in the batches of all faults so far; empty if there are none."""
    if not samples:
        return ""
    named = f"sample {samples[0]}" if len(samples) == 1 else f"samples {', '.join(map(str, samples))}"
    return f"; {named} {'is' if len(samples) == 1 else 'are'} in each of these batches"


def raised_rate(now: float, then: float) -> str:
    """Return that a learning rate is another one than in the state that the run has returned to."""
    return f"; the learning rate is {now:.3g} now, and was {then:.3g} in the state that the run has returned to"


def refused_on_ranks(count: int) -> str:
    """Return why a rank of several makes no returns by itself."""
    return f"this is one of {count} ranks, and a return of one of them would make them diverge"


def ended_text(event: ReturnsEnded) -> str:
    """Return one line: `--return-at-nan gives up: NaN in the loss of step 61, after 3 returns; the run continues …`."""
    return f"--return-at-{event.policy} gives up: {event.reason}; {WITHOUT}"


def policy_lines(state: RunState) -> list[str]:
    """Return what the return policies have done to a run; empty if nothing."""
    made = [each.made for each in state.kept.returns if each.kept is not None and each.kept.why == FINITE]
    lines = []
    if made:
        last = made[-1]
        where = f"the last at step {last.step:,} to step {last.to_step:,}"
        lines.append(f"{plural(len(made), 'return')} to a finite state, {where}: {last.why}")
    return [*lines, *ended_lines(state)]


def ended_lines(state: RunState) -> list[str]:
    """Return which policies have given up, and why."""
    return [*map(ended_text, state.kept.ended.values())]
