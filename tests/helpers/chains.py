"""A chain of modules made by hand, and what one step measured of it."""

from __future__ import annotations

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from helpers.fakes import Node, found


def small_linear(name: str) -> Node:
    return Node(name, "Linear", (("weight", (2, 2)),))


CHAIN = found(
    Node("Net", "Net", (), (
        small_linear("embed"), Node("drop", "Dropout"),
        Node("layers", "Sequential", (), tuple(small_linear(str(i)) for i in range(4))), small_linear("head"),
    ))
)  # fmt: skip
"""Modules: 0 the net, 1 embed, 2 drop, 3 layers, 4 to 7 in it, 8 head."""


def state_of(
    reach: str, modes: str = "g" * 9, trainable: str = "111111", called: tuple[int, ...] = (), states: str = "UUUUUU"
) -> RunState:
    """Return the state after one step: the reach and the grad mode of each module, the flag and the state of each parameter."""
    state = RunState()
    order = called or (0, 1, 2, 3, 4, 5, 6, 7, 8)
    for event in (
        CHAIN,
        ev.ParametersClassified(1.0, 1, states, trainable),
        ev.GradientFlowMeasured(1.0, 1, 0, reach, modes, "1" * 9, order, (0,)),
    ):
        apply(state, event)
    return state


LEAVES = tuple(index for index, module in enumerate(CHAIN.modules) if module.own_parameters)
