"""GT705: saving takes a large part of the loop."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.step_times import StepPart
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.step_parts import long_part, needs_steps
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import duration_text


def check(state: RunState) -> Iterator[Match]:
    """Match a loop that saves for much of its time."""
    for part in long_part(state, StepPart.SAVING):
        yield Match(
            f"{part.words} is torch.save: {duration_text(part.a_step)} for each training step",
            part.evidence,
            is_exact=part.is_exact,
        )


RULE = Rule(
    "GT705",
    Level.WARNING,
    "saving takes much of the time",
    "the model computes nothing while the script writes a file",
    "save less often, save only what trains (for an adapter, its own weights), or write to a faster disk",
    check,
    needs=needs_steps,
)
