"""What autograd does with one parameter or module, as JSON with the sentences that the dashboard shows. Pure."""

from __future__ import annotations

from typing import Any

from gradtui.protocol.codec import BadEntry
from gradtui.run.explanation.details import details
from gradtui.run.explanation.facts import Explanation, ModuleExplanation, ParameterExplanation
from gradtui.run.explanation.row import explanation
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import module_at
from gradtui.run.state.tree.selection import spellings, unknown_path
from gradtui.run.text.explanation.page import page
from gradtui.run.text.explanation.sentences import sentences
from gradtui.run.text.explanation.states import STATE_WORDS, state_text


def explained(state: RunState, path: str, *, in_full: bool = False) -> dict[str, Any]:
    """Return why a parameter or a module is in its state.

    Args:
        state: the run.
        path: the path of a parameter or a module; empty for the model, if there is one only.
        in_full: with every fact that the page of the row has.

    Returns:
        `path`, `kind` ("parameter" or "module"), `state` in words, `why` as sentences, the most important first. A parameter
        has `trainable` too; a module has `parameters` (how many tensors), and `saved_bytes`, None if unknown.
        `in_full` adds `page`: objects with a `label`, which several facts may share, and a `text`.

    Raises:
        BadEntry: there is no such path.
    """
    tree = state.tree
    for spelling in spellings(path, tree):
        index = next((index for index, info in enumerate(tree.parameters) if spelling in info.names), None)
        row = ~index if index is not None else module_at(tree, spelling)
        if row is not None:
            return {**_facts(explanation(state, row)), **({"page": _page(state, row)} if in_full else {})}
    raise BadEntry(unknown_path(path, tree))


def _facts(found: Explanation) -> dict[str, Any]:
    if isinstance(found, ParameterExplanation):
        own: dict[str, Any] = {"kind": "parameter", "trainable": found.trainable, "state": STATE_WORDS[found.kind]}
    else:
        kept = found.kept if isinstance(found, ModuleExplanation) else None
        own = {
            "kind": "module",
            "parameters": len(found.parameters),
            "saved_bytes": kept.bytes if kept is not None else None,
        }
        own["state"] = state_text(found.state)
    return {"path": found.path, **own, "why": sentences(found)}


def _page(state: RunState, row: int) -> list[dict[str, str]]:
    label, rows = "", []
    for each in page(details(state, row)):
        label = each.label or label
        rows.append({"label": label, "text": each.words})
    return rows
