"""GT121: parameters that trained and are used no more."""

from __future__ import annotations

import pytest
from fakes import Node, found
from scripted_run import linear, match, matches, run

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

BLOCK = Node("block", "Adapted", (), (linear("base"), linear("up")))
ADAPTED = found(Node("Net", "Net", (), (BLOCK, linear("head"))))
"""Modules: Net, block, base, up, head. Parameters: two each of base, up, head."""


def left_at(
    last: int,
    steps: int,
    states: str = "FFUUTT",
    trainable: str = "001111",
    rank: int = -1,
    samples: int = 8,
    every: int = 4,
) -> RunState:
    """After step `last` there is no gradient in `samples` steps, `every` steps apart, whose norms are read."""
    state = run(
        states, trainable, model=ADAPTED, owned=(2, 3, 4, 5), steps=steps, reach="eepee", grad_modes="ggggg",
        training="11111", called=(1, 2, 3, rank, 4),
    )  # fmt: skip
    for step in (*range(last - 3, last + 1), *range(last + every, last + 1 + samples * every, every)):
        norms = (None, None, *(0.5 if step <= last else None for _ in range(2)), 0.5, 0.5)
        apply(state, ev.GradientsMeasured(1.0, step, 1.0, None, norms))
    return state


def test_an_adapter_that_is_left_merged() -> None:
    one = match("GT121", left_at(20, 60))
    assert one.paths == ("block.up.weight", "block.up.bias")
    assert one.evidence["last_step"] == 20
    assert one.level is None


def test_a_branch_that_rests_is_a_note() -> None:
    assert match("GT121", left_at(20, 60, "TTUUTT", "111111")).level is Level.NOTE


@pytest.mark.parametrize(
    "state",
    [
        left_at(50, 60, samples=5, every=2),
        left_at(20, 60, samples=3),
        left_at(20, 60, every=1),
        left_at(20, 60, "FFTTTT"),
        left_at(20, 60, "FFUUUU"),
        left_at(20, 60, "FFUTTT", rank=4),
    ],
    ids=["a few steps ago", "few samples", "samples at once", "in use again", "nothing trains", "its module is in use"],
)
def test_parameters_that_are_used_or_were_a_moment_ago(state: RunState) -> None:
    assert matches("GT121", state) == []
