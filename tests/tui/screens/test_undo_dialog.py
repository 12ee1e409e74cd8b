"""The dialog of undo: the change alone, or the state that was kept before it."""

from __future__ import annotations

from helpers.app_session import Session, session
from helpers.events import progress
from textual.widgets import OptionList

from gradtui.protocol import events as ev
from gradtui.protocol.commands import ReturnToState, SetTrainable, Undo
from gradtui.tui.screens.undo import UndoDialog

KEPT = ev.StateKept(3.0, 512, 3, "change", "", 3 << 20, 0.01)
FROZEN = ev.CommandApplied(3.1, 512, SetTrainable(7, "blocks.0", False), "froze blocks.0: 2 tensors", ())
LATER = progress(700)


async def changed(run: Session, *events: ev.Event) -> None:
    await run.put(*events)
    await run.press("u")


async def test_change_is_undone_by_same_key_again() -> None:
    async with session((120, 36)) as run:
        await changed(run, KEPT, FROZEN, LATER)
        assert isinstance(run.app.screen, UndoDialog)
        assert not run.sink.submitted
        await run.press("u")
        assert [type(each) for each in run.sink.submitted] == [Undo]


async def test_state_before_change_is_offered() -> None:
    async with session((120, 36)) as run:
        await changed(run, KEPT, FROZEN, LATER)
        box = run.app.screen.query_one("#question").region
        screen = " ".join(" ".join(line[box.x + 1 : box.right - 1] for line in run.lines[box.y : box.bottom]).split())
        assert "step 512 (state 3): without the 188 steps" in screen
        await run.press("down", "enter")
        (sent,) = run.sink.submitted
        assert isinstance(sent, ReturnToState)
        assert sent.state == 3


async def test_without_such_a_state_undo_asks_nothing() -> None:
    forgotten = ev.StateForgotten(3.5, 600, (3,))
    for events in ((FROZEN, LATER), (KEPT, FROZEN), (KEPT, FROZEN, forgotten, LATER)):
        async with session((120, 36)) as run:
            await changed(run, *events)
            assert [type(each) for each in run.sink.submitted] == [Undo]
            assert not run.app.screen.query(OptionList)
