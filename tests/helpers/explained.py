"""What is said about a row of the module tree, in two lengths."""

from __future__ import annotations

from gradtui.run.explanation.details import details
from gradtui.run.explanation.row import explanation
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
