"""GT115: two optimizers of one parameter, and state of frozen ones."""

from __future__ import annotations

from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.freezes import FreezeInForce
from gradtui.protocol.vocabulary import OptimizerInfo
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def state_of(second: tuple[int, ...], steps: int = 20) -> RunState:
    state = run()
    apply(
        state,
        ev.OptimizersFound(1.0, 20, (state.optimizers[0], OptimizerInfo("Adam", 1, second, 0, (0,) * len(second)))),
    )
    apply(state, ev.Progress(1.0, 20 + steps, 20, 20, 0, (20, steps), (), 0.0, 1, 1))
    return state


def test_parameters_in_two_optimizers() -> None:
    found = match("GT115", state_of((2, 3)))
    assert (
        found.message
        == "SGD of Net (optimizer 0) and Adam of Net (optimizer 1) both own b.weight, b.bias (20 elements)"
    )
    assert found.level in (None, Level.NOTE)


def test_one_that_does_not_step_and_one_with_its_own() -> None:
    assert matches("GT115", state_of((2, 3), steps=0)) == []
    assert matches("GT115", state_of(())) == []


def test_an_optimizer_around_another_has_the_same_groups() -> None:
    state = state_of((2, 3))
    around = OptimizerInfo("Lookahead", 1, (2, 3), 0, (0, 0), groups_of=0)
    apply(state, ev.OptimizersFound(2.0, 21, (state.optimizers[0], around)))
    assert matches("GT115", state) == []


def test_state_of_frozen_parameters() -> None:
    state = run()
    event = ev.OptimizerStateUnused(1.0, 40, ("a.weight", "a.bias", "b.weight", "b.bias"), 4, 3 << 20, 12)
    apply(state, event)
    found = match("GT115", state)
    assert found.evidence == {"tensors": 4, "bytes": 3 << 20, "since_step": 12}
    assert (found.first_step, found.paths) == (12, event.parameters)
    assert found.message.endswith(
        "3.0 MiB of state for 4 frozen tensors, unused since step 12: a.weight, a.bias, b.weight and 1 more"
    )
    apply(state, ev.OptimizerStateUnused(1.0, 41, (), 0, 0, 41))
    assert matches("GT115", state) == []


def test_after_a_freeze_by_command_the_remedy_is_an_action_and_no_code() -> None:
    state = run()
    apply(state, ev.OptimizerStateUnused(1.0, 40, ("a.weight", "a.bias"), 2, 3 << 20, 12))
    assert "optimizer.state.pop" in (match("GT115", state).remedy or "")
    for in_force, command in (
        ((FreezeInForce("a", (0, 1)),), "freeze a state=drop"),
        ((FreezeInForce("a.weight", (0,)), FreezeInForce("a.bias", (1,))), None),
        ((FreezeInForce("all but b", (0, 1)),), None),
    ):
        apply(state, ev.FreezeStateChanged(1.0, 40, (0, 1), (), (), in_force))
        found = match("GT115", state)
        assert "Freeze and drop optimizer state" in (found.remedy or "")
        assert found.command == command
    apply(state, ev.FreezeStateChanged(1.0, 41, (0,), (), (), (FreezeInForce("a.weight", (0,)),)))
    assert "optimizer.state.pop" in (match("GT115", state).remedy or ""), "the script froze one of them"
