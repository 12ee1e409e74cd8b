"""Modules that work differently in train mode, within frozen parts of a model. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol.vocabulary import GradMode
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import subtree

_WITHOUT_GRAPH = (GradMode.NO_GRAD.value, GradMode.INFERENCE.value)


def frozen_modules_in_train_mode(state: RunState, kind: str) -> list[int]:
    """Return the indexes of the modules that ran in train mode in the newest sampled step, without trainable parameters.

    Args:
        state: the state of the run.
        kind: `running_mean` for modules with this buffer, else a part of the name of the module's type.

    A module without parameters of its own counts as frozen if the closest module around it that has parameters has no
    trainable one.
    """
    tree, flow = state.tree, state.tree.gradient_flow
    if flow is None or len(flow.training) != len(tree.modules) or not flow.called:
        return []
    if kind == "running_mean":
        chosen = {buffer.module for buffer in tree.buffers if buffer.path.rpartition(".")[2] == kind}
    else:
        chosen = {index for index, module in enumerate(tree.modules) if kind in module.type_name}
    held = set(tree.freezes.holding) if tree.freezes is not None else set()
    return [
        index
        for index in sorted(chosen - held)
        if flow.training[index] == "1" and _has_run(state, flow.called, index) and is_frozen(state, index)
    ]


def is_in_graph(state: RunState, module: int) -> bool:
    """Return whether a module ran with gradients enabled, in a model that has trainable parameters.

    A target network without gradients, such as the momentum encoder of MoCo, may be part of a model that trains.
    """
    modules, flow = state.tree.modules, state.tree.gradient_flow
    if flow is not None and flow.grad_modes[module : module + 1] in _WITHOUT_GRAPH:
        return False
    while modules[module].parent >= 0:
        module = modules[module].parent
    return "1" in _flags(state, module)


def _has_run(state: RunState, called: Sequence[int], module: int) -> bool:
    """Return whether a module was called. A model that is evaluated on its own has the rank 0, and its modules have none."""
    root = module
    while state.tree.modules[root].parent >= 0:
        root = state.tree.modules[root].parent
    return called[module] > 0 or called[root] == 0


def is_frozen(state: RunState, module: int) -> bool:
    """Return whether a module, or the closest one around it with parameters, has frozen parameters only."""
    modules = state.tree.modules
    while not modules[module].subtree_parameters and modules[module].parent >= 0:
        module = modules[module].parent
    flags = _flags(state, module)
    return bool(flags) and "1" not in flags and "-" not in flags


def _flags(state: RunState, module: int) -> str:
    where = subtree(state.tree.modules[module])
    return state.tree.trainable[where.start : where.stop]
