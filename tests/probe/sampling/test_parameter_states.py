"""The table from what was seen of a parameter to its letter."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from gradtui.probe.sampling.parameter_states import classify
from gradtui.protocol.vocabulary import ParameterState as State


def state(before: State = State.UNKNOWN, **changes: Any) -> State:
    base: dict[str, Any] = {
        "trainable": True, "in_optimizer": True, "has_gradient": True, "norm": 1.0,
        "moved": False, "passing": None, "skipped": False,
    }  # fmt: skip
    return State(classify(before.value, **(base | changes)))


TABLE = [
    ("a gradient, an optimizer", {}, State.TRAINED),
    ("a gradient of exactly zero", {"norm": 0.0}, State.ZERO),
    ("no gradient", {"has_gradient": False, "norm": None}, State.UNREACHED),
    ("NaN", {"norm": math.nan}, State.NOT_FINITE),
    ("infinity", {"norm": math.inf}, State.NOT_FINITE),
    ("infinity that the scaler caught", {"norm": math.inf, "skipped": True}, State.SKIPPED),
    ("a step left out", {"skipped": True}, State.SKIPPED),
    ("no optimizer", {"in_optimizer": False}, State.ORPHAN),
    ("no optimizer, no gradient", {"in_optimizer": False, "has_gradient": False, "norm": None}, State.ORPHAN),
    ("no optimizer, NaN", {"in_optimizer": False, "norm": math.nan}, State.NOT_FINITE),
    ("frozen, passing", {"trainable": False, "passing": True, "norm": None}, State.FLOW_THROUGH),
    ("frozen, not passing", {"trainable": False, "passing": False, "norm": None}, State.CUT),
    ("frozen and written to", {"trainable": False, "passing": True, "moved": True}, State.MOVED),
    ("frozen in no optimizer", {"trainable": False, "passing": False, "in_optimizer": False}, State.CUT),
]


@pytest.mark.parametrize(("changes", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_table(changes: dict[str, object], expected: State) -> None:
    for before in State:
        assert state(before, **changes) is expected


def test_norm_that_was_not_read_leaves_letter() -> None:
    assert state(State.TRAINED, norm=None) is State.TRAINED
    assert state(State.UNKNOWN, norm=None) is State.UNKNOWN


def test_unknown_frozen_parameter_keeps_earlier_knowledge() -> None:
    for before in State:
        expected = before if before in (State.FLOW_THROUGH, State.CUT) else State.UNKNOWN
        assert state(before, trainable=False, norm=None, passing=None) is expected


def test_every_state_but_unknown_has_facts() -> None:
    reached = {
        state(
            trainable=trainable, in_optimizer=owned, has_gradient=norm is not None, norm=norm, moved=moved, passing=passing,
            skipped=skipped,
        )
        for trainable, owned, norm, moved, passing, skipped in itertools.product(
            (True, False), (True, False), (None, 0.0, 1.0, math.nan), (True, False), (None, True, False), (True, False)
        )
    }  # fmt: skip
    assert reached >= set(State) - {State.UNKNOWN}
