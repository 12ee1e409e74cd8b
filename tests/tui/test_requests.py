from __future__ import annotations

import pytest
from fakes import coop_model, coop_run, row_of

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command, Pause, Resume, RunSteps, SetTrainable
from gradtui.state.reducer import apply
from gradtui.state.run_state import RunState
from gradtui.tui.requests import requests

MODEL = coop_model()


def state_after(*more: ev.Event, steps: int = 3) -> RunState:
    state = RunState()
    for event in (*coop_run(steps), *more):
        apply(state, event)
    return state


def made(request: requests.Make | requests.Refusal) -> Command:
    assert not isinstance(request, requests.Refusal), request
    return request(7)


@pytest.mark.parametrize(
    ("path", "trainable"),
    [
        ("ctx", False),
        ("text_encoder.text_projection", True),
        ("text_encoder", True),
        ("", False),
        ("image_encoder.fc", True),
    ],
)
def test_a_toggle_freezes_what_trains_and_unfreezes_the_rest(path: str, trainable: bool) -> None:
    assert made(requests.toggle(state_after(), row_of(MODEL, path))) == SetTrainable(7, path, trainable)


def test_a_second_toggle_before_the_answer_asks_for_the_opposite() -> None:
    state = state_after()
    row = row_of(MODEL, "ctx")
    first = made(requests.toggle(state, row))
    state.note_submitted(first)
    assert made(requests.toggle(state, row)) == SetTrainable(7, "ctx", True)


def test_a_module_counts_what_is_on_its_way_below_it() -> None:
    state = state_after()
    state.note_submitted(SetTrainable(1, "text_encoder.blocks.0", True))
    assert made(requests.toggle(state, row_of(MODEL, "text_encoder"))) == SetTrainable(7, "text_encoder", False)


@pytest.mark.parametrize(
    ("state", "row"),
    [
        (RunState(), None),
        (state_after(ev.RunEnded(9.0, 3, 0, None)), row_of(MODEL, "ctx")),
        (state_after(), row_of(MODEL, "text_encoder.blocks.0.mlp.1")),
        (state_after(steps=1), row_of(MODEL, "ctx")),
    ],
    ids=["no model", "ended", "no parameters", "not yet known"],
)
def test_a_toggle_that_means_nothing_is_refused_with_a_reason(state: RunState, row: int | None) -> None:
    refusal = requests.toggle(state, row)
    assert isinstance(refusal, requests.Refusal)
    assert refusal.reason


def test_pause_and_resume_take_turns_even_before_the_answer() -> None:
    state = state_after()
    assert made(requests.pause(state)) == Pause(7)
    state.note_submitted(Pause(1))
    assert made(requests.pause(state)) == Resume(7)
    apply(state, ev.CommandApplied(1.0, 3, Pause(1), "paused", ()))
    apply(state, ev.PauseChanged(1.0, 3, True))
    assert made(requests.pause(state)) == Resume(7)
    state.note_submitted(Resume(2))
    assert made(requests.pause(state)) == Pause(7)


def test_one_step() -> None:
    assert made(requests.one_step(state_after())) == RunSteps(7, 1)


def test_nothing_can_be_asked_of_a_run_that_has_ended() -> None:
    state = state_after(ev.RunEnded(9.0, 3, 0, None))
    assert isinstance(requests.pause(state), requests.Refusal)
    assert isinstance(requests.one_step(state), requests.Refusal)
