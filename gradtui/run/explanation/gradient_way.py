"""Makes the way of a gradient to a row, from the state of the run. Pure."""

from __future__ import annotations

from gradtui.protocol.commands import TraceGradient
from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.explanation.page_facts import AwaitedWay, GradientWay, Norm, PassedModule, PassedParameter
from gradtui.run.explanation.row import never_of
from gradtui.run.state.norms.shown_norms import shown_norms
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import gets_gradient, subtree, total_norm_at
from gradtui.run.state.series import joint_norm
from gradtui.run.state.tree_state import TreeState


def gradient_way(state: RunState, path: str) -> GradientWay | AwaitedWay | None:
    """Return the way of the gradient to a module or parameter, as it was found last; None if nobody asked for it."""
    tree, found = state.tree, state.tree.gradient_paths.get(path)
    if found is None:
        asked = any(isinstance(command, TraceGradient) and command.path == path for command in state.pending.values())
        if not asked and path not in tree.followed:
            return None
        return AwaitedWay.PAUSED if state.paused else AwaitedWay.IN_NEXT_STEP
    hops, is_module = (*found.gradient.hops, *found.gradient.onward), found.parameter < 0
    passed = {hop.module for hop in hops} | {found.module}
    passed |= {_block(tree, each) for each in passed}
    within = tree.modules[found.module].subtree_modules if is_module and found.gradient.found else 0
    return GradientWay(
        found,
        {index: _module(tree, index, range(found.module, found.module + within)) for index in passed - {-1}},
        {index: _parameter(state, index) for index in (found.parameter, found.gradient.upstream) if index >= 0},
        trains=is_module and gets_gradient(tree, subtree(tree.modules[found.module])),
        cause=never_of(tree, found.module),
    )


def _module(tree: TreeState, index: int, within: range) -> PassedModule:
    info = tree.modules[index]
    where = range(info.first_parameter, info.first_parameter + info.own_parameters) or subtree(info)
    states = "".join(dict.fromkeys(tree.states[where.start : where.stop]))
    return PassedModule(
        info.path or info.name, info.name, info.type_name, info.parent, states, _block(tree, index), index in within
    )


def _block(tree: TreeState, module: int) -> int:
    found = -1
    while module >= 0:
        if tree.modules[module].name.isdigit():
            found = module
        module = tree.modules[module].parent
    return found


def _parameter(state: RunState, index: int) -> PassedParameter:
    tree, shown = state.tree, shown_norms(state)
    value = joint_norm((shown.norms[index],)) if shown.norms is not None else None
    total = total_norm_at(state, shown.step) if not shown.is_part else None
    norm = Norm(value, shown.step, total, shown.is_part) if value is not None else None
    return PassedParameter(
        tree.parameters[index].path, ParameterState(tree.states[index]), tree.trainable[index] == "1", norm
    )
