"""GT704: evaluations take a large part of the loop."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.step_times import StepPart
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.step_parts import long_part, needs_steps
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import duration_text


def check(state: RunState) -> Iterator[Match]:
    """Match a loop that evaluates for much of its time."""
    for part in long_part(state, StepPart.EVALUATION):
        yield Match(
            f"{part.words} is evaluation: {duration_text(part.a_step)} for each training step",
            part.evidence,
            is_exact=part.is_exact,
        )


RULE = Rule(
    "GT704",
    Level.WARNING,
    "evaluation takes much of the time",
    "the weights do not change while the script evaluates",
    "evaluate less often, on fewer samples, in larger batches, or with workers for its DataLoader",
    check,
    needs=needs_steps,
)
