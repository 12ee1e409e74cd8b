"""The form of a try, and the dialog at its end."""

from __future__ import annotations

from helpers.app_session import session
from textual.widgets import Input, OptionList, Static

from gradtui.protocol import events as ev
from gradtui.protocol.commands import EndTry, TryChange
from gradtui.tui.screens.form import FormDialog
from gradtui.tui.screens.tries import TryDialog

WITHOUT = ev.TriedSide("", (1.0,) * 20, (0.01,) * 20, 1 << 20)
WITH = ev.TriedSide("freeze ctx", tuple(1.5 + 0.01 * (at % 2) for at in range(20)), (0.01,) * 20, 1 << 20)
REFUSED = ev.TriedSide("freeze no", (), (), None, ended="refused: no such thing")
TRIED = ev.ChangeTried(3.0, 30, 7, (WITHOUT, REFUSED, WITH), (), True)


async def test_the_form_tries_the_toggle_of_the_row() -> None:
    async with session((120, 40)) as run:
        await run.press("y")
        assert isinstance(run.app.screen, FormDialog)
        change, steps = run.app.screen.query(Input)
        assert change.value.startswith(("freeze ", "unfreeze "))
        expected = change.value
        steps.value = "3"
        await run.press("enter")
        assert not run.sink.submitted
        assert "10 to" in str(run.app.screen.query_one("#form-wrong", Static).content)
        steps.value = "20"
        await run.press("enter")
        (sent,) = run.sink.submitted
        assert isinstance(sent, TryChange)
        assert (sent.changes, sent.steps, sent.keep) == ((expected,), 20, "ask")


async def test_at_end_dialog_opens_and_side_is_chosen() -> None:
    async with session((120, 40)) as run:
        await run.put(TRIED, ev.PauseChanged(3.0, 30, True, "tried"))
        assert isinstance(run.app.screen, TryDialog)
        assert "+0.505" in str(run.app.screen.query_one("#form-notes", Static).content)
        rows = [str(option.prompt).strip() for option in run.app.screen.query_one(OptionList).options]
        assert rows == ["without a change", "freeze ctx"]
        await run.press("escape")
        await run.press("y", "down", "enter")
        (sent,) = run.sink.submitted
        assert isinstance(sent, EndTry)
        assert sent.side == 2
        await run.put(ev.TryEnded(4.0, 30, 7, 5, 2))
        assert run.app.run_state.tries.asks is None
