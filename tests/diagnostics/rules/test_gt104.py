"""GT104: frozen normalisation modules in train mode. GT105: the same in a model that does not train at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import Node, found
from scripted_run import linear, match, matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import BufferInfo

NORM = Node("norm", "BatchNorm1d", (("weight", (4,)), ("bias", (4,))))
WITH_NORM = found(Node("Net", "Net", (), (NORM, Node("drop", "Dropout"), linear("b"))))
"""Modules: Net, norm, drop, b."""


def model() -> ev.ModelsFound:
    buffers = (BufferInfo("norm.running_mean", (4,), "float32", 4, 16, 1, persistent=True),)
    return replace(WITH_NORM, buffers=buffers)


def test_statistics_of_a_frozen_module_move() -> None:
    state = run("FFTT", "0011", model=model(), reach="eppe", grad_modes="gggg", training="1111", called=(1, 2, 3, 4))
    assert match("GT104", state).paths == ("norm",)
    assert match("GT104", state).evidence == {"modules": 1}
    assert matches("GT105", state) == []


@pytest.mark.parametrize(
    ("trainable", "training", "called"),
    [
        pytest.param("0011", "1011", (1, 2, 3, 4), id="in eval mode"),
        pytest.param("0011", "1h11", (1, 2, 3, 4), id="track_running_stats is off"),
        pytest.param("1111", "1111", (1, 2, 3, 4), id="trains"),
        pytest.param("0011", "1111", (1, -1, 2, 3), id="did not run"),
    ],
)
def test_statistics_that_stay_or_are_to_move(trainable: str, training: str, called: tuple[int, ...]) -> None:
    state = run("FFTT", trainable, model=model(), reach="eppe", grad_modes="gggg", training=training, called=called)
    assert matches("GT104", state) == []
