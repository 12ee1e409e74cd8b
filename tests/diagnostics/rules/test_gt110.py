"""GT110: modules that run without being registered."""

from __future__ import annotations

from scripted_run import matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import UnregisteredModule
from gradtui.run.diagnostics import Match
from gradtui.run.reducer import apply


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
