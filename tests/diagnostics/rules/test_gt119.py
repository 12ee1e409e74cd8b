"""GT119: averaged copies that cannot follow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import Node, found
from scripted_run import linear, matches, run

from gradtui.protocol import events as ev
from gradtui.run.diagnostics import Match
from gradtui.run.reducer import apply

MODEL = found(
    Node("Net", "Net", (), (Node("student", "Part", (), (linear("a"),)), Node("teacher", "Part", (), (linear("a"),))))
)
"""Modules: Net, student, a, teacher, a."""
FOLLOWS = ev.AveragedCopyCompared(
    2.0, 30, copy=3, source=1, dtype="float32", since_step=1, is_called=True, buffers=("norm.running_mean",),
    tensors_changed=(1.0, 1.0), elements_changed=(1.0, 1.0), buffers_changed=(1.0, 1.0),
)  # fmt: skip


def said(**changes: object) -> list[Match]:
    state = run(
        "TTFF",
        "1100",
        model=MODEL,
        owned=(0, 1),
        reach="eeepp",
        grad_modes="ggggg",
        training="11111",
        called=(1, 2, 3, 4, 5),
    )
    apply(state, replace(FOLLOWS, **changes))  # type: ignore[arg-type]  # the caller names fields
    return matches("GT119", state)


def test_buffers_that_are_left_out() -> None:
    (left,) = said(buffers_changed=(0.0, 1.0))
    assert left.paths == ("teacher",)
    assert left.evidence == {"buffers": 1, "since_step": 1}


def test_an_average_that_rounding_keeps_still() -> None:
    (still,) = said(dtype="bfloat16", elements_changed=(0.05, 1.0), tensors_changed=(0.9, 1.0))
    assert still.evidence["changed"] == 0.05


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"buffers_changed": (0.0, 0.0)},
        {"buffers_changed": (0.0, 1.0), "is_called": False},
        {"buffers_changed": (0.0, 1.0), "tensors_changed": (0.0, 1.0)},
        {"buffers_changed": (0.0, 1.0), "step": 5},
        {"dtype": "bfloat16", "elements_changed": (0.0, 1.0), "tensors_changed": (0.0, 1.0)},
        {"dtype": "float32", "elements_changed": (0.05, 1.0)},
    ],
    ids=["follows", "no statistics", "never ran", "fixed teacher", "too early", "fixed teacher in bfloat16", "float32"],
)
def test_copies_that_are_as_they_should_be(changes: dict[str, object]) -> None:
    assert said(**changes) == []
