"""A typed change of a learning rate finds its param group, or says which there are; numbers that would break a run."""

from __future__ import annotations

import math
from typing import get_args, get_type_hints

import pytest

from gradtui.protocol import commands
from gradtui.protocol.codec import BadEntry
from gradtui.protocol.commands import Command, Intervention, RunTo, SetGroup, SetLearningRate, SetTrainable
from gradtui.protocol.vocabulary import OptimizerInfo
from gradtui.run.state.changes.objections import in_full, objection_to
from gradtui.run.state.run_state import RunState

RATE = {"command": "set_group", "learning_rate": 0.01}


def state(*groups: int, freed: frozenset[int] = frozenset()) -> RunState:
    """Return a run with an optimizer for each number of param groups."""
    optimizers = (OptimizerInfo("SGD", count, (), 0, freed=at in freed) for at, count in enumerate(groups))
    return RunState(optimizers=tuple(optimizers))


def test_the_only_group_need_not_be_named() -> None:
    assert in_full(RATE, state(1)) == {**RATE, "optimizer": 0, "group": 0}
    assert in_full(RATE, state(1, 1, freed=frozenset({0}))) == {**RATE, "optimizer": 1, "group": 0}
    assert in_full({**RATE, "group": 1}, state(2)) == {**RATE, "optimizer": 0, "group": 1}
    assert in_full({"command": "pause"}, state(2, 2)) == {"command": "pause"}


@pytest.mark.parametrize(
    ("run", "more", "reason"),
    [
        (state(2), {}, "there are 2 param groups, name one of optimizer=0 group=0 (SGD); optimizer=0 group=1 (SGD)"),
        (state(1, 1), {}, "there are 2 param groups"),
        (state(1), {"group": 3}, "there is no such param group; there is optimizer=0 group=0 (SGD)"),
        (state(), {}, "no optimizer has been seen yet"),
        (state(1, freed=frozenset({0})), {}, "there is no optimizer left"),
        (state(40), {}, "; and 34 more"),
    ],
)
def test_several_groups_are_named(run: RunState, more: dict[str, int], reason: str) -> None:
    with pytest.raises(BadEntry) as refused:
        in_full({**RATE, **more}, run)
    assert reason in str(refused.value)


KINDS = [
    kind
    for kind in vars(commands).values()
    if isinstance(kind, type) and issubclass(kind, Command) and kind not in (Command, Intervention)
]
NUMBERS = [
    (kind, name, number)
    for kind in KINDS
    for name, hint in get_type_hints(kind).items()
    if name != "id"
    for number in (
        *((10**400, -(10**400), 1 << 63) if hint is int else ()),
        *((math.inf, math.nan, -math.inf, 1e39, 10**400) if float in (hint, *get_args(hint)) else ()),
    )
]


@pytest.mark.parametrize(("kind", "name", "number"), NUMBERS)
def test_command_numbers_are_possible_in_training(kind: type[Command], name: str, number: float) -> None:
    hints = {each: hint for each, hint in get_type_hints(kind).items() if each != "origin"}
    given = {str: "x", int: 1, float: 0.5, bool: True, tuple[str, ...]: ("x",)}
    values = {each: given.get(hint, get_args(hint)[0] if get_args(hint) else None) for each, hint in hints.items()}
    values |= {"steps": 10, "changes": ("freeze x",)} if kind is commands.TryChange else {}
    values |= {each: 0.5 for each in ("learning_rate", "weight_decay") if each in hints}
    assert objection_to(kind(**values)) is None or kind is SetTrainable  # type: ignore[arg-type]
    objection = objection_to(kind(**{**values, name: number}))  # type: ignore[arg-type]
    assert objection is not None
    assert len(objection) < 150
    assert "\n" not in objection


def test_a_number_that_no_optimizer_has() -> None:
    assert "-1" in (objection_to(SetGroup(1, -1, 0, 0.1)) or "")
    for number in (1 << 63, 16**5_000, -(16**5_000)):
        assert objection_to(SetGroup(1, 0, number, 0.1)) is not None


def test_settings_beyond_float32_would_break_the_run() -> None:
    for command in (
        SetLearningRate(1, "0", 1e31),
        SetGroup(1, 0, 0, 1e31),
        SetGroup(1, 0, 0, None, 1e31),
        SetGroup(1, 0, 0, 10**400),
    ):
        assert "would break the run" in str(objection_to(command))
    for command in (SetGroup(1, 0, 0, 1e30, 0), SetGroup(1, 0, 0, 0.0), RunTo(1, (1 << 63) - 1)):
        assert objection_to(command) is None
