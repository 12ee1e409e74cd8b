"""GT118: the forward of a frozen module writes to the module's own parameters or buffers."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.norm_modules import is_frozen, is_in_graph
from gradtui.run.diagnostics.parameters import needs_frozen
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import listed


def check(state: RunState) -> Iterator[Match]:
    """Match frozen parameters, and buffers of frozen modules in train mode, that calls of their module have changed."""
    tree, flow = state.tree, state.tree.gradient_flow
    by_path = {info.path: index for index, info in enumerate(tree.parameters)}
    training = flow.training if flow is not None else ""
    parameters, buffers = [], []
    for module, name in state.evidence.own_writes.tensors if state.evidence.own_writes is not None else ():
        if module >= len(tree.modules) or not is_in_graph(state, module) or _takes_turns(state, module):
            continue
        path = f"{tree.modules[module].path}.{name}" if tree.modules[module].path else name
        if path in by_path:
            if tree.trainable[by_path[path]] == "0":
                parameters.append(path)
        elif is_frozen(state, module) and training[module : module + 1] == "1":
            buffers.append(path)
    if parameters:
        yield Match(
            f"{listed(parameters)} {'is' if len(parameters) == 1 else 'are'} frozen, and the forward of the module itself "
            f"writes to {'it' if len(parameters) == 1 else 'them'}",
            {"tensors": len(parameters)},
            tuple(parameters),
            remedy="leave max_norm out of a frozen embedding: it shortens the rows that a forward reads",
            key="parameters",
        )
    if buffers:
        yield Match(
            f"{listed(buffers)} {'changes' if len(buffers) == 1 else 'change'} in forward although the parameters around "
            f"{'it' if len(buffers) == 1 else 'them'} are frozen: the module is in train mode",
            {"tensors": len(buffers)},
            tuple(buffers),
            key="buffers",
        )


def _takes_turns(state: RunState, module: int) -> bool:
    """Return whether the script freezes and unfreezes parameters of the model in turns, as a GAN does."""
    tree = state.tree
    while tree.modules[module].parent >= 0:
        module = tree.modules[module].parent
    first, count = tree.modules[module].first_parameter, tree.modules[module].subtree_parameters
    return any(first <= index < first + count for index in tree.switches)


RULE = Rule(
    "GT118",
    Level.WARNING,
    "frozen tensors are written by their own forward",
    "requires_grad = False does not stop a forward that writes to its own tensors: spectral norm, max_norm, a code book",
    "call eval() on the frozen modules after each train(), or remove what writes: remove_spectral_norm, max_norm=None",
    check,
    needs=needs_frozen,
)
