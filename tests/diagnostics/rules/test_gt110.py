"""GT110: modules that run without being registered."""

from __future__ import annotations

from scripted_run import matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import UnregisteredModule
from gradtui.run.diagnostics import Match
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level


def found(*modules: UnregisteredModule) -> list[Match]:
    state = run()
    apply(state, ev.UnregisteredFound(1.0, 1, modules))
    return matches("GT110", state)


def module(caller: str, *, trainable: int = 20, in_optimizer: int = 0) -> UnregisteredModule:
    return UnregisteredModule(caller, "Linear", None, 20, trainable, in_optimizer, 0)


def test_one_match_for_each_caller() -> None:
    first, second = found(module("Net"), module("Net"), module("a", in_optimizer=5))
    assert first.evidence == {"modules": 2, "elements": 40}
    assert second.evidence == {"modules": 1, "elements": 15}
    assert {first.key, second.key} == {"Net", "a"}


def test_frozen_ones_and_those_of_an_optimizer() -> None:
    assert found(module("Net", trainable=0), module("Net", in_optimizer=20)) == []


def tensor(
    holder: str | None,
    *,
    of_module: bool = True,
    operation: str | None = None,
    parameter: bool = True,
    joined: bool = False,
) -> ev.UnregisteredTensor:
    return ev.UnregisteredTensor(holder, of_module, operation, parameter, joined, 8, 1)


def found_tensors(*tensors: ev.UnregisteredTensor) -> list[Match]:
    state = run()
    apply(state, ev.UnregisteredTensorsFound(1.0, 9, tensors))
    return matches("GT110", state)


def test_tensors_of_one_container_are_one_match() -> None:
    first, second = found_tensors(
        tensor("a.scales[0]"), tensor("a.scales[1]"), tensor("gate", operation="ToCopyBackward0")
    )
    assert first.evidence == {"holder": "a.scales", "tensors": 2, "elements": 16}
    assert second.message.startswith(
        "gate, the result of ToCopyBackward on nn.Parameter of 8 elements, gets a gradient"
    )
    assert first.remedy != second.remedy
    assert first.paths == ("a.scales[0]", "a.scales[1]")


def test_tensors_that_may_be_inputs() -> None:
    assert found_tensors(tensor("x", of_module=False, parameter=False)) == []
    (warning,) = found_tensors(tensor("temperature", of_module=False, parameter=False, joined=True))
    assert warning.level is Level.WARNING
    (unheld,) = found_tensors(tensor(None, of_module=False))
    assert unheld.message.startswith("nn.Parameter of 8 elements that no variable holds gets a gradient")
