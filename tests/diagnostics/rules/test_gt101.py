"""GT101: what a gradient of zeros moves, with the settings that move it."""

from __future__ import annotations

import pytest
from scripted_run import match, matches, run


@pytest.mark.parametrize("reason", ["z", "d"])
def test_frozen_parameters_that_zeros_move(reason: str) -> None:
    found = match("GT101", run("MMTT", "0011", reason * 2 + "--"))
    assert found.paths == ("a.weight", "a.bias")
    assert found.evidence == {"tensors": 2, "elements": 4 * 4 + 4}
    assert found.message.startswith(
        "a.weight, a.bias (20 elements) are frozen and move: the gradient is zeros, not None"
    )
    assert found.message.endswith("momentum 0.9 still applies")


@pytest.mark.parametrize("reason", ["s", "o", "w", "-"])
def test_what_moves_for_another_reason(reason: str) -> None:
    assert matches("GT101", run("MMTT", "0011", reason * 2 + "--")) == []


def test_a_frozen_parameter_that_stays() -> None:
    assert matches("GT101", run("CCTT", "0011")) == []
