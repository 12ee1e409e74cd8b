"""The dialog of the key `b`."""

from __future__ import annotations

from helpers.app_session import Session, session
from helpers.step_memory import BEFORE
from textual.widgets import OptionList, Static

from gradtui.protocol import events as ev
from gradtui.protocol.commands import ClearBreakpoint, Pause, SetBreakpoint
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.tui.screens.breakpoints import BreakpointDialog


def breakpoint_dialog(run: Session) -> BreakpointDialog:
    screen = run.app.screen
    assert isinstance(screen, BreakpointDialog)
    return screen


async def test_a_condition_is_typed_and_sent() -> None:
    async with session() as run:
        await run.press("b")
        assert not breakpoint_dialog(run).query_one(OptionList).display
        await run.press(*"loss>3", "enter")
        assert run.sink.submitted == [SetBreakpoint(1, "loss", 3.0)]
        assert not isinstance(run.app.screen, BreakpointDialog)


async def test_bad_input_keeps_dialog_open_and_says_why() -> None:
    async with session() as run:
        await run.press("b", *"soon", "enter")
        assert "soon is no condition" in str(breakpoint_dialog(run).query_one("#form-wrong", Static).render())
        await run.press("escape")
        assert run.sink.submitted == []


async def test_settings_are_listed_and_cleared() -> None:
    async with session() as run:
        first, second = SetBreakpoint(1, "loss", 3.0), SetBreakpoint(2, "finding")
        await run.put(*(ev.CommandApplied(1.0, 3, each, "pauses", ()) for each in (first, second)))
        await run.press("b")
        options = breakpoint_dialog(run).query_one(OptionList)
        assert [str(option.prompt).strip() for option in options.options] == ["loss > 3", "any finding"]
        await run.press("down", "ctrl+d")
        assert run.sink.submitted == [ClearBreakpoint(1, 2)]


async def test_without_a_breakpoint_there_is_none_to_clear() -> None:
    async with session() as run:
        await run.press("b", "ctrl+d")
        assert "No breakpoint is set." in str(breakpoint_dialog(run).query_one("#form-wrong", Static).render())


async def test_the_viewer_sends_the_pause_of_memory_once() -> None:
    # The screen counts memory without what was there before training.
    held = MemoryBytes(0, 0, 0, 0, 0, 0, total=BEFORE + 2048)
    measured = ev.MemoryMeasured(2.0, 41, Phase.BACKWARD, held, None, False, True, ())
    async with session() as run:
        await run.put(ev.CommandApplied(1.0, 3, SetBreakpoint(1, "memory", 1024.0), "pauses", ()), measured, measured)
        assert run.sink.submitted == [Pause(1, "memory 2.0 KiB > 1.0 KiB at step 41", 1)]


async def test_after_the_end_there_is_nothing_to_set() -> None:
    async with session() as run:
        await run.put(ev.RunEnded(9.0, 40, 0, None))
        await run.press("b")
        assert not isinstance(run.app.screen, BreakpointDialog)
