"""GT107: an optimizer with tensors of no module, beside orphans."""

from __future__ import annotations

from dataclasses import replace

from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState


def with_unknown(state: RunState, unknown: int) -> RunState:
    """Give the optimizer so many tensors of no live module."""
    apply(state, ev.OptimizersFound(1.0, 20, (replace(state.optimizers[0], unknown_parameters=unknown),)))
    return state


def test_a_head_that_was_replaced() -> None:
    found = match("GT107", with_unknown(run("TTOO", owned=(0, 1)), 2))
    assert found.evidence == {"tensors_of_no_module": 2, "tensors_in_no_optimizer": 2}
    assert found.paths == ("b.weight", "b.bias")
    assert found.message.startswith(
        "SGD owns 2 tensors of no live module, and b.weight, b.bias (20 elements) are in none"
    )


def test_one_of_both_alone() -> None:
    assert matches("GT107", with_unknown(run("TTOO", owned=(0, 1)), 0)) == []
    assert matches("GT107", with_unknown(run(), 2)) == []


def test_tensors_that_get_new_gradients_were_not_replaced() -> None:
    state = with_unknown(run("TTOO", owned=(0, 1)), 3)
    apply(state, ev.UnlistedTensorsTrain(1.0, 20, 0, 1))
    assert match("GT107", state).evidence["tensors_of_no_module"] == 2
    apply(state, ev.UnlistedTensorsTrain(1.0, 21, 0, 3))
    assert matches("GT107", state) == []
