"""What autograd does with one parameter or module, as JSON with the sentences that the dashboard shows. Pure."""

from __future__ import annotations

import difflib
from typing import Any

from gradtui.protocol.codec import BadEntry
from gradtui.run.explanation.row import module_explanation, parameter_explanation
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selection import spellings
from gradtui.run.state.selectors import module_at
from gradtui.run.text.explanation.sentences import sentences
from gradtui.run.text.explanation.states import STATE_WORDS, state_text


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
        index = next((index for index, info in enumerate(tree.parameters) if spelling in info.names), None)
        if index is not None:
            found = parameter_explanation(state, index)
            facts: dict[str, Any] = {
                "kind": "parameter",
                "trainable": found.trainable,
                "state": STATE_WORDS[found.kind],
            }
            return {"path": found.path, **facts, "why": sentences(found)}
        if (at := module_at(tree, spelling)) is not None:
            inside = module_explanation(state, at)
            saved = inside.kept.bytes if inside.kept is not None else None
            facts = {"kind": "module", "parameters": len(inside.parameters), "saved_bytes": saved}
            return {"path": inside.path, **facts, "state": state_text(inside.state), "why": sentences(inside)}
    known = [*(module.path for module in tree.modules), *(info.path for info in tree.parameters)]
    near = difflib.get_close_matches(path, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise BadEntry(f"there is no module or parameter {path!r}{hint}" if known else "there is no model yet")
