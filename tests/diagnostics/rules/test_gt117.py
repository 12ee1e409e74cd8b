"""GT117: flags that torch does not read."""

from __future__ import annotations

from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.run.diagnostics import Match
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState


def with_flag(states: str, trainable: str, value: bool, *, module: int = 1, is_set_by_class: bool = False) -> RunState:
    """A flag of the linear module `a`, or of the parameter `a.weight` where `module` is -1."""
    state = run(states, trainable)
    flag = ev.PlainFlag("requires_grad", value, module, -1 if module >= 0 else 0, is_set_by_class)
    apply(state, ev.FlagsFound(1.0, 1, (flag,), listing=state.tree.listing))
    return state


def found(state: RunState) -> list[Match]:
    return matches("GT117", state)


def test_parameters_that_train_below_a_flag_that_is_false() -> None:
    one = match("GT117", with_flag("TTTT", "1111", value=False))
    assert one.paths == ("a.weight", "a.bias")
    assert one.message == (
        "requires_grad = False is a plain attribute of a and freezes nothing: a.weight, a.bias (20 elements) train"
    )
    assert match("GT117", with_flag("TTTT", "1111", value=False, module=-1)).paths == ("a.weight",)


def test_parameters_that_are_frozen_below_a_flag_that_is_true() -> None:
    one = match("GT117", with_flag("CCTT", "0011", value=True))
    assert one.paths == ("a.weight", "a.bias")
    assert one.remedy is not None
    assert found(with_flag("CCTT", "0011", value=True, is_set_by_class=True)) == []


def test_flags_that_say_what_is_so() -> None:
    assert found(with_flag("CCTT", "0011", value=False)) == []
    assert found(with_flag("TTTT", "1111", value=True)) == []
    assert found(with_flag("CTTT", "0111", value=True)) == []


def test_parameters_without_a_gradient_and_those_that_were_unfrozen() -> None:
    """The class of the module may run it under no_grad, or have frozen it until some step."""
    assert found(with_flag("UUTT", "1111", value=False)) == []
    state = with_flag("CCTT", "0011", value=False)
    apply(state, ev.ParametersClassified(2.0, 9, "TTTT", "1111", ""))
    assert found(state) == []
