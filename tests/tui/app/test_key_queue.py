"""Keys that the terminal delivers faster than the app handles them: each acts where it would have acted a second later."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.app_session import Session, session
from textual import events
from textual.widgets import Input

from gradtui.protocol.commands import (
    Command,
    Pause,
    RunSteps,
    SetTrainable,
    StopTraining,
    TraceGradient,
    TrainOnly,
    Watch,
)
from gradtui.tui.app import key_queue
from gradtui.tui.screens.form import FormDialog
from gradtui.tui.screens.freeze import FreezeDialog

CHARACTERS = {"slash": "/", "space": " ", "question_mark": "?"}


def type_at_once(run: Session, *keys: str) -> None:
    """Have the terminal deliver all of these before any is handled."""
    for key in keys:
        run.app.post_message(events.Key(key, CHARACTERS.get(key, key if len(key) == 1 else None)))


async def settle(run: Session) -> None:
    """Wait until no key waits."""
    for _ in range(50):
        await run.pilot.pause()
        if not run.app.is_running or not run.app.key_queue.is_busy:
            return
    raise AssertionError("keys still wait")


async def test_key_after_dialog_key_is_typed() -> None:
    async with session() as run:
        type_at_once(run, "f", "g")
        await settle(run)
        assert isinstance(run.app.screen, FreezeDialog)
        assert run.app.screen.query_one(Input).value == "g"


def changes(run: Session) -> list[Command]:
    """What was asked of the run, without numbers and without requests for figures."""
    figures = (TraceGradient, Watch)
    return [replace(command, id=0) for command in run.sink.submitted if not isinstance(command, figures)]


WALKS = {
    "a dialog with a list": (("q", "s"), [StopTraining(0)]),
    "a form": (("N", "1", "2", "enter"), [RunSteps(0, 12)]),
    "a form, then the tree": (
        ("N", "1", "2", "enter", "space", "space"),
        [RunSteps(0, 12), SetTrainable(0, "", False)],
    ),
    "the help": (("question_mark", "escape", "space", "space"), [SetTrainable(0, "", False)]),
    "why": (("enter", "escape", "space", "space"), [SetTrainable(0, "", False)]),
    "freeze": (("f", *"ctx", "enter"), [TrainOnly(0, "ctx")]),
    "the plots": (("g", "escape", "space", "space"), [SetTrainable(0, "", False)]),
    "the palette": (("ctrl+p", "escape", "space", "space"), [SetTrainable(0, "", False)]),
    "one after the other": (("q", "escape", "N", "3", "enter", "N", "4", "enter"), [RunSteps(0, 3), RunSteps(0, 4)]),
}


async def typed(*keys: str) -> list[Command]:
    """What these keys ask of the run: the same typed one by one and at once."""
    async with session() as slow:
        for key in keys:
            await slow.press(key)
    async with session() as fast:
        type_at_once(fast, *keys)
        await settle(fast)
    assert changes(slow) == changes(fast)
    return changes(fast)


@pytest.mark.parametrize("walk", WALKS)
async def test_keys_typed_at_once_act_singly(walk: str) -> None:
    keys, asked = WALKS[walk]
    assert await typed(*keys) == asked


@pytest.mark.parametrize("moved", [(), ("down",)])
async def test_keys_typed_behind_filter_act_on_tree(moved: tuple[str, ...]) -> None:
    keys = (
        "slash",
        *"conv1",
        *moved,
        "enter",
        "space",
        "space",
        "slash",
        *"ctx",
        "escape",
        "space",
        "space",
        "home",
        "space",
        "space",
    )
    path = "image_encoder.conv1" + (".weight" if moved else "")
    asked = [SetTrainable(0, path, True), SetTrainable(0, "ctx", False), SetTrainable(0, "", False)]
    assert await typed(*keys) == asked


async def test_pasted_text_waits_for_opening_dialog() -> None:
    async with session() as run:
        type_at_once(run, "f")
        run.app.post_message(events.Paste("ctx"))
        await settle(run)
        assert run.app.screen.query_one(Input).value == "ctx"


async def test_keys_go_on_without_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session() as run:
        monkeypatch.setattr(key_queue, "MAX_SECONDS", 0.01)
        monkeypatch.setattr(key_queue.KeyQueue, "on_key_followed", lambda _queue, _message: None)
        type_at_once(run, "p", "N")
        await settle(run)
        assert changes(run) == [Pause(0)]
        assert isinstance(run.app.screen, FormDialog)
