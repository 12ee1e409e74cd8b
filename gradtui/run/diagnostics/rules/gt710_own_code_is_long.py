"""GT710: the script's own code between the phases takes a large part of the loop."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.step_times import StepPart
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.step_parts import EXACT_STEPS, MIN_LOST_S, long_part, needs_steps
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.small_operations import small_operations
from gradtui.run.state.time.step_shares import STANDS_OUT, step_shares
from gradtui.run.text.units import duration_text, share_words

_WHERE = {
    StepPart.PREPARE: "between the arrival of a batch and the forward",
    StepPart.OTHER: "outside of the model, the optimizer and the DataLoader",
}


def check(state: RunState) -> Iterator[Match]:
    """Match a loop whose own code takes much of its time."""
    for kind, where in _WHERE.items():
        for part in long_part(state, kind):
            yield Match(
                f"{part.words} is the script's own code {where}: {duration_text(part.a_step)} a step",
                part.evidence,
                is_exact=part.is_exact,
                key=kind.value,
            )
    shares, small = step_shares(state.step_times), small_operations(state)
    if shares is None or small is None or small.between < STANDS_OUT[StepPart.OTHER]:
        return
    lost = small.between * shares.seconds
    if lost >= MIN_LOST_S:
        taken = f"{duration_text(lost)} of {duration_text(shares.seconds)}"
        yield Match(
            f"{share_words(small.between)} of the loop ({taken}) is the script's own code between operations of the forward: "
            f"{duration_text(lost / shares.steps)} a step",
            {"share": round(small.between, 3), "seconds": round(lost, 3), "steps": shares.steps},
            is_exact=shares.steps >= EXACT_STEPS,
            remedy="make this code faster, such as an environment's, or run several at once in one call of the model",
            key="between",
        )


RULE = Rule(
    "GT710",
    Level.NOTE,
    "the script's own code takes much of the time",
    "the model computes nothing while the script logs, draws, or makes a batch",
    "look at what the loop does between backward and the next forward: logging, metrics, drawing, augmenting",
    check,
    needs=needs_steps,
)
