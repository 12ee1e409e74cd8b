"""The dialog of kept states: the list, and the keys that keep, return and forget."""

from __future__ import annotations

from helpers.app_session import session
from textual.widgets import OptionList, Static

from gradtui.protocol import events as ev
from gradtui.protocol.commands import ForgetState, KeepState, RenameState, ReturnToState, SaveState
from gradtui.tui.screens.kept_states import KeptStatesDialog

FIRST = ev.StateKept(3.0, 30, 1, "command", "before warm-up", 3 << 20, 0.01)
SECOND = ev.StateKept(4.0, 40, 2, "change", "", 3 << 20, 0.01)


async def test_a_state_is_kept_by_one_key() -> None:
    async with session() as run:
        await run.press("k")
        assert [type(each) for each in run.sink.submitted] == [KeepState]


async def test_newest_is_first_and_return_confirms() -> None:
    async with session((120, 36)) as run:
        await run.put(FIRST, SECOND)
        await run.press("K")
        assert isinstance(run.app.screen, KeptStatesDialog)
        rows = [str(option.prompt) for option in run.app.screen.query_one(OptionList).options]
        assert ["step 40" in rows[0], "step 30" in rows[1], "before warm-up" in rows[1]] == [True] * 3
        await run.press("down", "enter")
        assert not run.sink.submitted
        assert "again" in str(run.app.screen.query_one("#form-wrong", Static).content)
        await run.press("enter")
        (sent,) = run.sink.submitted
        assert isinstance(sent, ReturnToState)
        assert sent.state == 1
        assert run.app.screen is run.dashboard


async def test_other_row_cancels_and_states_go() -> None:
    async with session((120, 36)) as run:
        await run.put(FIRST, SECOND)
        await run.press("K", "enter", "down", "enter")
        assert not run.sink.submitted
        await run.press("d")
        (sent,) = run.sink.submitted
        assert isinstance(sent, ForgetState)
        assert sent.state == 1
        await run.put(ev.StateForgotten(5.0, 50, (1,)))
        await run.press("K")
        assert len(run.app.screen.query_one(OptionList).options) == 1


async def test_state_is_renamed_and_saved() -> None:
    async with session((120, 36)) as run:
        await run.put(FIRST, SECOND)
        await run.press("K", "r", "k", "d", "enter")
        await run.press("K", "down", "r", "ctrl+u", "x", "enter")
        await run.press("K", "w", "a", ".", "s", "t", "enter")
        sent = run.sink.submitted
        assert [type(each) for each in sent] == [RenameState, RenameState, SaveState]
        assert [(each.state, getattr(each, "name", None) or each.file) for each in sent] == [
            (2, "kd"), (1, "x"), (2, "a.st")
        ]  # fmt: skip
        await run.put(ev.StateRenamed(5.0, 50, 1, "x"))
        await run.press("K")
        assert isinstance(run.app.screen, KeptStatesDialog)
        assert "x" in str(run.app.screen.query_one(OptionList).options[1].prompt)


async def test_the_dialog_says_what_a_copy_takes() -> None:
    async with session((120, 36)) as run:
        await run.put(FIRST)
        await run.press("K")
        notes = str(run.app.screen.query_one("#form-notes", Static).content)
        assert "3.0 MiB" in notes
        assert "10.0 ms" in notes


async def test_without_state_dialog_says_how_one_is_kept() -> None:
    async with session((120, 36)) as run:
        await run.press("K", "k")
        assert [type(each) for each in run.sink.submitted] == [KeepState]
