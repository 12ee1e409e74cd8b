"""What autograd does with one parameter or module, as JSON with the sentences that the dashboard shows. Pure."""

from __future__ import annotations

import difflib
from typing import Any

from gradtui.protocol.codec import BadEntry
from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.state.frontier import frontier
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selection import spellings
from gradtui.run.state.selectors import saved_bytes, subtree
from gradtui.run.text.parameters import STATE_WORDS
from gradtui.run.text.why import module_sentences, parameter_sentences, state_text


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
                flag = tree.trainable[index]
                return {
                    "path": info.path,
                    "kind": "parameter",
                    "trainable": None if flag == "-" else flag == "1",
                    "state": STATE_WORDS[ParameterState(tree.states[index])],
                    "why": parameter_sentences(state, index),
                }
        for index, module in enumerate(tree.modules):
            if module.path == spelling:
                where = subtree(module)
                return {
                    "path": module.path,
                    "kind": "module",
                    "parameters": len(where),
                    "saved_bytes": saved_bytes(tree, index),
                    "state": state_text(state, where),
                    "why": module_sentences(state, index, frontier(tree)),
                }
    known = [*(module.path for module in tree.modules), *(info.path for info in tree.parameters)]
    near = difflib.get_close_matches(path, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise BadEntry(f"there is no module or parameter {path!r}{hint}" if known else "there is no model yet")
