"""EX101: the loss is negative."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import newest_loss

GRADTUI_PLUGIN_API = 1


def check(state: RunState) -> Iterator[Match]:
    """Match a newest loss below zero. The state is read only."""
    loss, step = newest_loss(state)
    if loss is not None and loss < 0:
        yield Match(f"the loss is {loss:.4g}", {"loss": loss, "step": step})


RULES = [
    Rule(
        "EX101",
        Level.NOTE,
        "the loss is negative",
        "cross entropy and squared errors are never below zero",
        "look at the sign of the loss, and at what is subtracted from it",
        check,
    ),
]
