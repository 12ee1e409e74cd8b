"""The rows of the module tree by their numbers. Pure.

A module's row is its index, a parameter's row is its inverted index (`~index`, so always negative). Buffers are numbered after
the parameters, and inverted too.
"""

from __future__ import annotations

from gradtui.protocol.vocabulary import BufferInfo
from gradtui.run.state.findings import Finding, open_findings
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree_state import TreeState


def buffer_at(tree: TreeState, row: int) -> BufferInfo | None:
    """Return the buffer of a row; None for a module or a parameter."""
    return tree.buffers[~row - len(tree.parameters)] if ~row >= len(tree.parameters) else None


def row_path(tree: TreeState, row: int) -> str:
    """Return the path of a row's module, parameter or buffer."""
    if row >= 0:
        return tree.modules[row].path
    return (buffer_at(tree, row) or tree.parameters[~row]).path


def findings_at(state: RunState, row: int) -> list[Finding]:
    """Return the open findings that concern a row or, if it is a module, anything in it; gravest first."""
    if buffer_at(state.tree, row) is not None:
        return []
    path = row_path(state.tree, row)
    if row < 0:
        return [finding for finding in open_findings(state.findings) if path in finding.paths]
    below = f"{path}." if path else ""
    return [
        finding
        for finding in open_findings(state.findings)
        if any(concerned == path or concerned.startswith(below) for concerned in finding.paths)
    ]
