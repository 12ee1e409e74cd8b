"""GT201: trainable parameters that an optimizer has get no gradient: a leaf, a detached output, no_grad."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ENTERED, GradMode, ParameterState, Reach
from gradtui.run.diagnostics.parameters import elements, in_state, named, optimized, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_LEAVES, _STEPS = 2, 3
_OFF = (GradMode.NO_GRAD.value, GradMode.INFERENCE.value)


def check(state: RunState) -> Iterator[Match]:
    """Match backwards of leaves, and parameters of optimizers in modules that ran without a graph or outside of the loss's."""
    leaves = state.calls.leaf_backwards if state.calls is not None else 0
    nothing_trains = ParameterState.TRAINED.value not in state.tree.states and sum(state.optimizer_steps) >= _STEPS
    if leaves >= _LEAVES or (leaves and nothing_trains):
        yield Match(
            "backward() is called on a leaf: no operation leads from any parameter to it",
            {"backwards": leaves},
            is_exact=True,
            call="backward",
            remedy="do not rebuild the loss from numbers: no torch.tensor(loss), .item() or requires_grad_() on it",
            key="leaf",
        )
    others = state.calls.backwards_to_others if state.calls is not None else 0
    # Where all parameters are frozen, that is what keeps them from training (GT112).
    if others >= _LEAVES and nothing_trains and "1" in state.tree.trainable:
        yield Match(
            "backward() is called on what is computed from tensors of no module alone: "
            "no operation leads from any parameter to it",
            {"backwards": others},
            is_exact=True,
            call="backward",
            remedy="compute the loss from the tensors with their graph: no torch.tensor(), .item(), .tolist() or .numpy()",
            key="leaf",
        )
    tree, flow, owned = state.tree, state.tree.gradient_flow, optimized(state)
    if flow is None or not flow.reach:
        return
    unreached = [index for index in in_state(tree, ParameterState.UNREACHED) if index in owned]
    modules = [tree.parameters[index].module for index in unreached]
    without_graph = [index for index, module in zip(unreached, modules) if flow.grad_modes[module] in _OFF]
    if without_graph:
        yield Match(
            f"{named(tree, without_graph)} get no gradient: forward runs under no_grad",
            {"tensors": len(without_graph), "elements": elements(tree, without_graph)},
            paths(tree, without_graph),
            remedy="leave the no_grad block for what is to train, or freeze it",
            key="no_grad",
        )
    entered = [
        flow.called[tree.parameters[index].module]
        for index in range(len(tree.parameters))
        if flow.reach[tree.parameters[index].module] in ENTERED and flow.called[tree.parameters[index].module] > 0
    ]
    first = min(entered, default=0)
    not_entered = [
        (index, flow.called[module])
        for index, module in zip(unreached, modules)
        if flow.reach[module] == Reach.NOT_ENTERED.value
        and flow.grad_modes[module] == GradMode.GRAD.value
        and flow.called[module] > 0
    ]
    detached = [index for index, called in not_entered if called < first]
    if detached:
        yield Match(
            f"{named(tree, detached)} get no gradient: what their modules compute reaches the loss without a graph",
            {"tensors": len(detached), "elements": elements(tree, detached)},
            paths(tree, detached),
            remedy="pass the tensor on as it is: no .detach(), .data, .item(), .tolist() or torch.tensor()",
            key="detached",
        )
    unused = [index for index, called in not_entered if 0 < first < called]
    if unused:
        yield Match(
            f"{named(tree, unused)} get no gradient: the output of their modules is detached from the loss, or not used in it",
            {"tensors": len(unused), "elements": elements(tree, unused)},
            paths(tree, unused),
            level=Level.NOTE,
            remedy="pass the output on as a tensor with its graph, or leave the modules out of the optimizer",
            key="unused",
        )


RULE = Rule(
    "GT201",
    Level.ERROR,
    "trainable parameters get no gradient",
    "backward follows the operations that autograd recorded; where the graph is interrupted, nothing before it trains",
    "find where the graph ends: key j in gradtui shows the path of a gradient",
    check,
    explains=frozenset({"GT112"}),
    needs=needs_sample,
)
