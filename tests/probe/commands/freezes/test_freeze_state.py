"""What a person froze survives in the script's checkpoint and is frozen again in the run that resumes from it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from helpers.toggling import freeze, normed, small, step, unfreeze
from helpers.watched import Watched, watched
from torch import nn

import gradtui
from gradtui.probe import session
from gradtui.probe.session import set_active
from gradtui.protocol.commands import SetRowsTrainable
from gradtui.protocol.events import FreezeStateChanged
from gradtui.run.text import refusals

NOTHING = {"version": 1, "frozen": [], "holding_statistics": []}


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    yield
    session._waiting.clear()


@contextmanager
def active() -> Iterator[Watched]:
    with watched() as seen:
        set_active(seen.probe)
        try:
            yield seen
        finally:
            set_active(None)


def saved_after(model: nn.Module, *commands: object) -> dict[str, object]:
    with active() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        for command in commands:
            seen.submit(command)
        step(model, optimizer)
        return gradtui.state_dict()


def test_it_names_what_person_froze_and_nothing_else() -> None:
    model = normed()
    model[2].bias.requires_grad_(False)
    state = saved_after(model, freeze("0"), unfreeze("0.0.bias"))
    assert state == {"version": 1, "frozen": ["0.0.weight", "0.1.bias", "0.1.weight"], "holding_statistics": ["0.1"]}
    assert json.loads(json.dumps(state)) == state
    file = io.BytesIO()
    torch.save({"gradtui": state}, file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == {"gradtui": state}
    assert saved_after(small()) == NOTHING


@pytest.mark.parametrize("when", ["before the model", "after it", "while it trains"])
def test_a_resumed_run_keeps_what_was_frozen(when: str) -> None:
    state = saved_after(normed(), freeze("0"))
    with active() as seen:
        if when == "before the model":
            gradtui.load_state_dict(state)
        model = normed()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if when == "after it":
            gradtui.load_state_dict(state)
        before = {name: tensor.clone() for name, tensor in model[0].state_dict().items()}
        for number in range(4):
            if when == "while it trains" and number == 2:
                gradtui.load_state_dict(state)
                before = {name: tensor.clone() for name, tensor in model[0].state_dict().items()}
            step(model, optimizer)
            assert gradtui.state_dict() == (state if when != "while it trains" or number >= 2 else NOTHING)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model[0].state_dict().items())
    assert ": 4 tensors" in seen.answers()[0]
    assert seen.answers()[0].endswith("modules hold their statistics")


def test_state_loaded_before_any_step_is_whole() -> None:
    state = saved_after(normed(), freeze("0"))
    with active():
        gradtui.load_state_dict(state)
        assert gradtui.state_dict() == state


def test_vanished_rows_are_one_line_and_rest_freezes() -> None:
    model = small()
    with active() as seen:
        gradtui.load_state_dict({"version": 1, "frozen": ["0.weight", "nine.bias"], "holding_statistics": ["old"]})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            step(model, optimizer)
        (answer,) = seen.answers()
        assert answer.endswith(refusals.not_in_models("left out nine.bias, old"))
        # It is not handed on to the next checkpoint.
        assert gradtui.state_dict() == {"version": 1, "frozen": ["0.weight"], "holding_statistics": []}
    assert not model[0].weight.requires_grad


def test_rows_are_frozen_again_beside_whole_tensors() -> None:
    frozen_rows = partial(SetRowsTrainable, path="2.weight", trainable=False, rows="0:3,5")
    state = saved_after(small(), freeze("0"), frozen_rows)
    assert state == {**NOTHING, "frozen": ["0.bias", "0.weight"], "rows": ["2.weight 0:3,5"]}
    lost = {**state, "rows": ["2.weight 0:3,5", "nine.weight 1"]}
    with active() as seen:
        gradtui.load_state_dict(lost)
        assert gradtui.state_dict() == lost
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before = model[2].weight.detach().clone()
        for _ in range(3):
            step(model, optimizer)
        assert gradtui.state_dict() == state
    assert torch.equal(model[2].weight[[0, 1, 2, 5]], before[[0, 1, 2, 5]])
    assert not torch.equal(model[2].weight[[3, 4, 6, 7]], before[[3, 4, 6, 7]])
    (answer,) = seen.answers()
    assert "rows 0:3,5 of 2.weight" in answer
    assert answer.endswith(refusals.not_in_models("left out nine.weight"))


def test_a_model_that_comes_later_is_waited_for() -> None:
    first, second = small(), small()
    with active() as seen:
        gradtui.load_state_dict({"version": 1, "frozen": ["2.weight"], "holding_statistics": []})
        head = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        for _ in range(2):
            step(head, optimizer)
        assert seen.answers() == [refusals.not_in_models("2.weight")]
        optimizer = torch.optim.SGD(second.parameters(), lr=0.1)
        for _ in range(3):
            step(second, optimizer)
        assert not second[2].weight.requires_grad
        assert first[2].weight.requires_grad
    assert ": 1 tensor" in seen.answers()[1]


def test_the_resumed_run_can_undo_it() -> None:
    from gradtui.protocol.commands import Undo

    model = small()
    with active() as seen:
        gradtui.load_state_dict({"version": 1, "frozen": ["2.weight"], "holding_statistics": []})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(Undo)
        step(model, optimizer)
    assert model[2].weight.requires_grad
    assert seen.all(FreezeStateChanged)[-1].frozen == ()


def test_undone_unfreeze_returns_freeze_to_script() -> None:
    from gradtui.protocol.commands import Undo

    model = normed()
    model[0].requires_grad_(False)
    assert saved_after(model, unfreeze("0"), Undo) == NOTHING
    assert not any(parameter.requires_grad for parameter in model[0].parameters())


def test_undone_unfreeze_restores_own_freeze() -> None:
    from gradtui.protocol.commands import Undo

    model = normed()
    frozen = saved_after(model, freeze("0"))
    assert saved_after(normed(), freeze("0"), unfreeze("0"), Undo) == frozen


@pytest.mark.parametrize(
    "state",
    [
        None,
        [],
        {},
        {"version": 2, "frozen": []},
        {"version": 1, "frozen": "0.weight"},
        {"version": 1, "frozen": [1]},
    ],
)
def test_what_is_no_state_is_one_line(state: object, capsys: pytest.CaptureFixture[str]) -> None:
    model = small()
    with active() as seen:
        gradtui.load_state_dict(state)
        step(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert seen.answers() == []
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("gradtui: ")
    assert lines[0].endswith("nothing is frozen")


def test_an_unwatched_run_in_between_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    state = {"version": 1, "frozen": ["2.weight"], "holding_statistics": []}
    assert gradtui.state_dict() == NOTHING
    gradtui.load_state_dict(state)
    assert gradtui.state_dict() == state
    assert " 1 frozen tensor " in capsys.readouterr().err
    gradtui.load_state_dict(NOTHING)
    assert capsys.readouterr().err == ""
    # A watch that is opened later takes it up.
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gradtui.watch(model, optimizer, progress=False):
        step(model, optimizer)
        assert gradtui.state_dict() == state
    assert not model[2].weight.requires_grad
