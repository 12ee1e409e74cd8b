"""What is said about a row of the module tree, in two lengths."""

from __future__ import annotations

import dataclasses

from gradtui.run.explanation.details import details
from gradtui.run.explanation.row import explanation
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.text.explanation.page import page
from gradtui.run.text.explanation.sentences import sentences


def short(state: RunState, row: int) -> list[str]:
    """Return the sentences about a row, the most important first."""
    return sentences(explanation(state, row))


def at_label(state: RunState, row: int, *labels: str) -> list[str]:
    """Return the words of the page of a row under these labels."""
    found, label = [], ""
    for each in page(details(state, row)):
        label = each.label or label
        found += [each.words] if label in labels else []
    return found


def reach_at(state: RunState, at: int, letter: str, modes: str | None = None) -> None:
    """Apply the next step, in which one module has another letter, and all modules these grad modes."""
    old = state.tree.gradient_flow
    letters = old.reach[:at] + letter + old.reach[at + 1 :]
    apply(state, dataclasses.replace(old, step=old.step + 1, reach=letters, grad_modes=modes or old.grad_modes))
