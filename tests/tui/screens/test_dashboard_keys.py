"""Keys that change the run, from the press to the answer on the screen."""

from __future__ import annotations

import pytest
from helpers.app_session import Session, session
from helpers.fakes import (
    coop_model,
    coop_states,
    row_of,
)
from helpers.lines import line_text, texts
from textual import events

from gradtui.configuration.settings import RemappedKeys
from gradtui.protocol import events as ev
from gradtui.protocol.commands import (
    Pause,
    Resume,
    RunSteps,
    SetCheckpointing,
    SetTrainable,
)
from gradtui.tui.panels.why import why_lines
from gradtui.tui.tree.tree_cells import FREEZE

MODEL = coop_model()
CTX = ~row_of(MODEL, "ctx")


async def test_space_freezes_and_shows_pending_then_applied() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.press("space", "space")
        assert run.sink.submitted == [SetTrainable(1, "ctx", False)]
        line = run.dashboard.tree_view.text.splitlines()[1]
        assert line.startswith(FREEZE)
        assert " freeze… " in line
        states, trainable = coop_states(MODEL)
        frozen = states.replace("T", "C"), trainable.replace("1", "0")
        applied = ev.CommandApplied(2.0, 41, SetTrainable(1, "ctx", False), "froze ctx", (CTX,))
        await run.put(applied, ev.ParametersClassified(2.0, 41, *frozen))
        line = run.dashboard.tree_view.text.splitlines()[1]
        assert line.startswith(" ")
        assert " off " in line


BLOCK = "text_encoder.blocks.7"
"""A frozen block of 12 tensors."""


def said(run: Session) -> list[str]:
    return [note.text for note in run.said]


async def test_large_toggle_waits_for_second_press() -> None:
    async with session() as run:
        await run.go_to(BLOCK)
        await run.press("space")
        assert run.sink.submitted == []
        preview = run.dashboard.why.preview
        assert line_text(preview.heading) == f"Press space again to unfreeze {BLOCK}: "
        assert preview.clauses[0] == "12 tensors"
        assert preview.title == f"{BLOCK} · unfreeze? (any other key cancels)"
        shown = texts(why_lines(preview, 78, 3))
        assert "activations" in " ".join(shown), "the smallest panel has room for what the forecast says"
        await run.press("space")
        assert run.sink.submitted == [SetTrainable(1, BLOCK, True)]
        assert run.dashboard.why.preview is None


@pytest.mark.parametrize("other", [("p",), ("down", "up"), ("question_mark", "escape")])
async def test_any_other_key_cancels_what_waits(other: tuple[str, ...]) -> None:
    async with session() as run:
        await run.go_to(BLOCK)
        await run.press("space", *other)
        assert run.dashboard.why.preview is None
        await run.press("space")
        assert not any(isinstance(command, SetTrainable) for command in run.sink.submitted)
        assert run.dashboard.why.preview is not None


@pytest.mark.parametrize(("action", "state"), [("freeze_dropping", "drop"), ("freeze_offloading", "offload")])
async def test_large_state_freeze_waits_for_choice(action: str, state: str) -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.do(action)
        assert run.sink.submitted == []
        preview = run.dashboard.why.preview
        assert preview is not None
        title = f"Freeze and {state} optimizer state"
        assert line_text(preview.heading) == f"Choose {title} again to freeze ctx: "
        assert "cancels" not in preview.title
        await run.press("ctrl+p")
        assert run.sink.submitted == []
        await run.press("escape")
        await run.do(action)
        assert run.sink.submitted == [SetTrainable(1, "ctx", False, state)]  # type: ignore[arg-type]
        assert run.dashboard.why.preview is None


async def test_another_request_does_not_confirm_what_waits() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.do("freeze_dropping")
        await run.press("space")
        assert run.sink.submitted == []
        await run.do("freeze_dropping")
        assert run.sink.submitted == []
        await run.press("down", "up")
        await run.do("freeze_dropping")
        assert run.sink.submitted == [], "the cursor has moved"


async def test_own_key_for_freeze_is_named() -> None:
    async with session(keys=[RemappedKeys("freeze_dropping", "D", "file")]) as run:
        await run.go_to("ctx")
        await run.press("D")
        preview = run.dashboard.why.preview
        assert line_text(preview.heading).startswith("Press D again ")
        await run.press("p", "D")
        assert run.sink.submitted == [Pause(1)], "any other key cancels"
        await run.press("D")
        assert run.sink.submitted[1:] == [SetTrainable(2, "ctx", False, "drop")]


async def click_state(run: Session, path: str) -> None:
    """Press and release the mouse on the state of a row, by way of the app as a driver does."""
    tree = run.dashboard.tree_view
    index = tree.rows.position(row_of(MODEL, path))
    assert index is not None
    x = tree.content_region.x + tree._cells.columns.cells_of("state").start
    y = tree.content_region.y + index - tree.top
    for kind in (events.MouseDown, events.MouseUp):
        run.app.post_message(kind(None, x, y, 0, 0, 1, False, False, False, screen_x=x, screen_y=y))
        await run.pilot.pause()


async def test_two_clicks_on_the_state_are_two_presses() -> None:
    async with session() as run:
        await run.go_to(BLOCK)
        await click_state(run, BLOCK)
        assert run.sink.submitted == []
        assert run.dashboard.why.preview is not None
        await click_state(run, BLOCK)
        assert run.sink.submitted == [SetTrainable(1, BLOCK, True)]


@pytest.mark.parametrize(("panel", "keys"), [("memory", ("m",)), ("output", ()), ("events", ("v",))])
async def test_keys_need_focus_on_tree(panel: str, keys: tuple[str, ...]) -> None:
    async with session() as run:
        await run.go_to(BLOCK)
        await run.press(*keys)
        run.dashboard.query_one(f"#{panel}").focus()
        for key in ("space", "c"):
            await run.press(key)
        assert [text.partition(" acts")[0] for text in said(run)] == ["space (freeze)", "c (checkpoint)"]
        if panel == "events":
            await run.press("enter")
            assert said(run)[-1].startswith("enter (why) ")
        assert run.sink.submitted == []
        assert run.app.screen is run.dashboard
        assert all("esc goes back" in text for text in said(run))
        await run.press("escape", "c")
        assert run.sink.submitted == [SetCheckpointing(1, BLOCK, True)]


async def test_palette_acts_on_tree_wherever_focus_is() -> None:
    async with session() as run:
        await run.go_to(BLOCK)
        run.dashboard.memory.focus()
        await (await run.palette())["Checkpoint activations  c"]()
        assert run.sink.submitted == [SetCheckpointing(1, BLOCK, True)]


async def test_refusal_gives_row_back_and_says_why() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.press("space")
        await run.put(ev.CommandRejected(2.0, 41, SetTrainable(1, "ctx", False), "it is the last trainable parameter"))
        assert FREEZE not in run.dashboard.tree_view.text
        assert any("cannot freeze ctx: " in note.text for note in run.said)
        await run.press("v")
        assert "last trainable parameter" in " ".join(run.dashboard.events.text.split())


async def test_pause_go_on_and_single_steps() -> None:
    async with session() as run:
        await run.press("p")
        assert "pausing" in run.dashboard.header.text
        await run.put(ev.CommandApplied(2.0, 40, Pause(1), "paused", ()), ev.PauseChanged(2.0, 40, True))
        assert "paused" in run.dashboard.header.text
        await run.press("n", "p")
        assert run.sink.submitted == [Pause(1), RunSteps(2, 1), Pause(3)]
        await run.put(*(ev.CommandApplied(2.0, 40, done, "done", ()) for done in (RunSteps(2), Pause(3))))
        await run.press("p")
        assert run.sink.submitted[-1] == Resume(4)
