"""GT501: most units of a layer get a gradient of exactly zero."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.diagnostics.parameters import paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree_state import TreeState

_KINDS = ("Linear", "Conv", "BatchNorm")
"""Parts of the names of types whose bias has one element per unit."""
_DEAD = 0.9
_WITH_GRADIENT = (ParameterState.TRAINED.value, ParameterState.ZERO.value)


def check(state: RunState) -> Iterator[Match]:
    """Match layers where nearly all elements of the gradients of weight and bias are exactly zero."""
    # The bias counts the units. Zeros of the weight alone are no evidence: they may come from inputs that are zero.
    tree = state.tree
    for weight, bias in _layers(tree):
        figures = [tree.gradient_figures[index][1] for index in (weight, bias)]
        if any(each.zero_fraction < _DEAD or each.stored != each.elements for each in figures):
            continue
        units, share = tree.parameters[bias].count, figures[0].zero_fraction
        dead = round(units * figures[1].zero_fraction)
        names = paths(tree, (weight, bias))
        yield Match(
            f"{dead:,} of {units:,} elements of {names[1]} and {share:.0%} of {names[0]} have a gradient of exactly zero",
            {"units": units, "units_without_gradient": dead, "zero_fraction": share},
            names,
            key=names[1],
        )


def _layers(tree: TreeState) -> Iterator[tuple[int, int]]:
    """Yield the indexes of weight and bias of each layer whose gradients have statistics."""
    for module in tree.modules:
        if any(kind in module.type_name for kind in _KINDS):
            own = range(module.first_parameter, module.first_parameter + module.own_parameters)
            measured = [
                index for index in own if index in tree.gradient_figures and tree.states[index] in _WITH_GRADIENT
            ]
            by_name = {tree.parameters[index].path.rpartition(".")[2]: index for index in measured}
            if by_name.keys() >= {"weight", "bias"}:
                yield by_name["weight"], by_name["bias"]


RULE = Rule(
    "GT501",
    Level.NOTE,
    "most units of a layer get no gradient",
    "a unit whose activation is constant for all inputs, such as a ReLU below zero, neither trains nor passes a gradient on",
    "lower the learning rate or change the initial values, or use an activation without a flat part, such as LeakyReLU",
    check,
    needs=lambda state: None if any(_layers(state.tree)) else "no layer with a bias had statistics of its gradient",
    is_default=False,
)
