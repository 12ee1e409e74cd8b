"""What autograd does with one parameter or module, as JSON with the sentences that the dashboard shows. Pure."""

from __future__ import annotations

import difflib
from typing import Any

from gradtui.protocol.codec import BadEntry
from gradtui.run.explanation.row import module_explanation, parameter_explanation
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selection import spellings
from gradtui.run.text import STATE_WORDS, state_text
from gradtui.run.text.explanation.sentences import sentences


def explained(state: RunState, path: str) -> dict[str, Any]:
    """Return why a parameter or a module is in its state.

    Args:
        state: the run.
        path: the path of a parameter or a module; empty for the model, if there is one only.

    Returns:
        `path`, `kind` ("parameter" or "module"), `state` in words, `why` as sentences, the most important first. A parameter
        has `trainable` too; a module has `parameters` (how many tensors), and `saved_bytes`, None if unknown.

    Raises:
        BadEntry: there is no such path.
    """
    tree = state.tree
    for spelling in spellings(path, tree):
        for index, info in enumerate(tree.parameters):
            if spelling in info.names:
                found = parameter_explanation(state, index)
                return {
                    "path": found.path,
                    "kind": "parameter",
                    "trainable": found.trainable,
                    "state": STATE_WORDS[found.kind],
                    "why": sentences(found),
                }
        for index, module in enumerate(tree.modules):
            if module.path == spelling:
                inside = module_explanation(state, index)
                return {
                    "path": inside.path,
                    "kind": "module",
                    "parameters": len(inside.parameters),
                    "saved_bytes": inside.kept.bytes if inside.kept is not None else None,
                    "state": state_text(inside.state),
                    "why": sentences(inside),
                }
    known = [*(module.path for module in tree.modules), *(info.path for info in tree.parameters)]
    near = difflib.get_close_matches(path, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise BadEntry(f"there is no module or parameter {path!r}{hint}" if known else "there is no model yet")
