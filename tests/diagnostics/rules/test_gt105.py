"""GT105: a frozen model in train mode. The tests of GT104 have the modules of a model that trains."""

from __future__ import annotations

from dataclasses import replace

from fakes import Node, found
from scripted_run import linear, match, matches, run

from gradtui.protocol.vocabulary import BufferInfo

BUFFERS = (BufferInfo("norm.running_mean", (4,), "float32", 4, 16, 1, persistent=True),)
TEACHER = replace(
    found(
        Node("Net", "Net", (), (Node("norm", "BatchNorm1d", (("weight", (4,)),)), Node("drop", "Dropout"), linear("b")))
    ),
    buffers=BUFFERS,
)


def test_dropout_and_statistics_of_a_teacher() -> None:
    state = run(
        "CCC", "000", model=TEACHER, owned=(), reach="----", grad_modes="nnnn", training="1111", called=(0, -1, -1, -1)
    )
    assert match("GT105", state).evidence == {"dropout_modules": 1, "statistics_modules": 1}
    assert match("GT105", state).paths == ("drop", "norm")
    assert matches("GT104", state) == []


def test_a_teacher_in_eval_mode() -> None:
    state = run(
        "CCC", "000", model=TEACHER, owned=(), reach="----", grad_modes="nnnn", training="0000", called=(0, -1, -1, -1)
    )
    assert matches("GT105", state) == []


def test_a_teacher_that_did_not_run() -> None:
    state = run(
        "CCC", "000", model=TEACHER, owned=(), reach="----", grad_modes="nnnn", training="1111", called=(-1,) * 4
    )
    assert matches("GT105", state) == []


def test_a_momentum_encoder_within_the_model() -> None:
    state = run("CTT", "011", model=TEACHER, reach="--ee", grad_modes="gnng", training="1111", called=(1, 2, 3, 4))
    assert match("GT105", state).evidence == {"dropout_modules": 0, "statistics_modules": 1}
    assert matches("GT104", state) == []
