from __future__ import annotations

import pytest
from helpers.fakes import coop_model, row_of
from helpers.states import coop_after

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command, Pause, Resume, RunSteps, SetTrainable
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.tui.requests import requests

MODEL = coop_model()
BLOCK = "text_encoder.blocks.0"


def toggle(state: RunState, row: int | None) -> requests.Make | requests.Refusal:
    return requests.command_for("toggle_trainable", state, row)


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
def test_toggle_freezes_what_trains_and_unfreezes_rest(path: str, trainable: bool) -> None:
    assert made(toggle(coop_after(steps=3), row_of(MODEL, path))) == SetTrainable(7, path, trainable)


def test_second_toggle_before_answer_asks_for_opposite() -> None:
    state = coop_after(steps=3)
    row = row_of(MODEL, "ctx")
    first = made(toggle(state, row))
    state.note_submitted(first)
    assert made(toggle(state, row)) == SetTrainable(7, "ctx", True)


def test_module_counts_pending_below() -> None:
    state = coop_after(steps=3)
    state.note_submitted(SetTrainable(1, "text_encoder.blocks.0", True))
    assert made(toggle(state, row_of(MODEL, "text_encoder"))) == SetTrainable(7, "text_encoder", False)


@pytest.mark.parametrize(
    ("state", "row"),
    [
        (RunState(), None),
        (coop_after(ev.RunEnded(9.0, 3, 0, None), steps=3), row_of(MODEL, "ctx")),
        (coop_after(steps=3), row_of(MODEL, "text_encoder.blocks.0.mlp.1")),
        (coop_after(steps=1), row_of(MODEL, "ctx")),
    ],
    ids=["no model", "ended", "no parameters", "not yet known"],
)
def test_toggle_that_means_nothing_is_refused_with_reason(state: RunState, row: int | None) -> None:
    refusal = toggle(state, row)
    assert isinstance(refusal, requests.Refusal)
    assert refusal.reason


def test_pause_and_resume_take_turns_even_before_answer() -> None:
    state = coop_after(steps=3)
    assert made(requests.command_for("pause", state, None)) == Pause(7)
    state.note_submitted(Pause(1))
    assert made(requests.command_for("pause", state, None)) == Resume(7)
    apply(state, ev.CommandApplied(1.0, 3, Pause(1), "paused", ()))
    apply(state, ev.PauseChanged(1.0, 3, True))
    assert made(requests.command_for("pause", state, None)) == Resume(7)
    state.note_submitted(Resume(2))
    assert made(requests.command_for("pause", state, None)) == Pause(7)


def test_one_step() -> None:
    assert made(requests.command_for("run_one_step", coop_after(steps=3), None)) == RunSteps(7, 1)


@pytest.mark.parametrize("name", requests.REQUESTS)
def test_ended_run_can_be_asked_nothing(name: str) -> None:
    state = coop_after(ev.RunEnded(9.0, 3, 0, None), steps=3)
    assert requests.command_for(name, state, row_of(MODEL, BLOCK)) == requests.Refusal(requests.OVER)


@pytest.mark.parametrize("name", requests.REQUESTS)
def test_rowless_requests_work_without_row(name: str) -> None:
    answer = requests.command_for(name, RunState(), None)
    on_a_row = {
        "toggle_trainable", "unfreeze_all", "freeze_dropping", "freeze_offloading", "toggle_checkpointing", "toggle_mode",
    }  # fmt: skip
    assert isinstance(answer, requests.Refusal) == (name in on_a_row or name == "keep_state")


@pytest.mark.parametrize("name", ["toggle_checkpointing", "toggle_mode"])
def test_what_is_for_modules_is_refused_on_parameter(name: str) -> None:
    answer = requests.command_for(name, coop_after(steps=3), row_of(MODEL, "ctx"))
    assert answer.reason.startswith("ctx is a parameter")


@pytest.mark.parametrize("name", ["toggle_checkpointing", "pause_at_bad_step", "follow_micro_steps"])
def test_a_toggle_reverses_what_was_asked_for_last(name: str) -> None:
    state, row = coop_after(steps=3), row_of(MODEL, BLOCK)
    asked = []
    for number in range(3):
        answer = requests.command_for(name, state, row)
        assert not isinstance(answer, requests.Refusal)
        state.note_submitted(answer(number))
        asked.append(getattr(answer(number), "on"))  # noqa: B009  # every toggle of these has it
    assert asked == [True, False, True]
