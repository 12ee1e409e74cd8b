"""GT304: graphs that grow with each step match, and those that stop growing do not."""

from __future__ import annotations

import pytest

from gradtui.protocol import events as ev
from gradtui.run.diagnostics.rules.gt304_graph_grows import RULE
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState


def state_of(counts: list[int], *, every: int = 1) -> RunState:
    state = RunState()
    for index, count in enumerate(counts):
        step = 1 + index * every
        apply(state, ev.SavedBytesMeasured(float(step), step, (), 0, operations=count + 7, earlier_operations=count))
    return state


def test_a_graph_with_all_steps_before_it() -> None:
    (match,) = RULE.check(state_of([6 * step for step in range(12)]))
    assert match.evidence == {"operations": 73, "earlier_operations": 66, "operations_per_step": 6.0}
    assert match.message.startswith("the graph of step 12 has 73 operations, 66 of them from earlier steps")
    assert match.message.endswith("it grows by 6 with each step")
    assert match.first_step == 3


def test_samples_that_are_some_steps_apart() -> None:
    (match,) = RULE.check(state_of([60 * sample for sample in range(4)], every=10))
    assert match.evidence["operations_per_step"] == 6.0


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param([0] * 30, id="each step has a graph of its own"),
        pytest.param([6 * min(step, 8) for step in range(30)], id="backward through eight steps"),
        pytest.param([6 * (step % 5) for step in range(30)], id="detached at every fifth step"),
        pytest.param([6 * step for step in range(9)], id="too few steps"),
        pytest.param([*range(0, 60, 10), *range(51, 56)], id="grows less and less"),
    ],
)
def test_graphs_that_do_not_grow_with_each_step(counts: list[int]) -> None:
    assert list(RULE.check(state_of(counts))) == []
