"""Dialogs and the palette: how they open, keep up with the run, and close."""

from __future__ import annotations

import pytest
from helpers.app_session import Session, session
from helpers.fakes import (
    coop_model,
    coop_run,
    row_of,
)
from textual.app import ComposeResult
from textual.widgets import OptionList, Static

from gradtui.protocol import events as ev
from gradtui.protocol.commands import (
    Resume,
    SetTrainable,
    StopTraining,
    TraceStep,
)
from gradtui.protocol.vocabulary import Holding, Phase
from gradtui.tui.actions.action_table import ACTIONS
from gradtui.tui.rendering.lines import Line
from gradtui.tui.screens.detail_dialogs import DetailDialog, StepDialog
from gradtui.tui.screens.dialog import Dialog
from gradtui.tui.screens.leave import LeaveDialog
from gradtui.tui.screens.text_dialog import DialogLines, TextDialog
from gradtui.tui.tree import ALL_COLUMNS
from gradtui.tui.tree.pane import ColumnTitles

MODEL = coop_model()
CTX = ~row_of(MODEL, "ctx")
SIZES = [(80, 24), (100, 30), (160, 50)]


class BareDialog(Dialog[None]):
    def compose(self) -> ComposeResult:
        yield Static("text", id="question")


async def test_any_dialog_stands_in_middle_of_dashboard() -> None:
    async with session((120, 36)) as run:
        run.app.push_screen(BareDialog())
        await run.pilot.pause()
        box = run.app.screen.query_one("#question").region
        assert abs(box.x - (120 - box.right)) <= 1
        assert abs(box.y - (36 - box.bottom)) <= 1
        assert "coop" in run.lines[0]


async def test_enter_explains_row_and_keeps_up_with_run() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.press("enter")
        assert isinstance(run.app.screen, DetailDialog)
        shown = run.app.screen.query_one("#dialog-lines")
        assert "T trains" in shown.text  # type: ignore[attr-defined]
        run.source.put(ev.CommandApplied(2.0, 41, SetTrainable(9, "ctx", False), "froze ctx", (CTX,)))
        await run.pump()
        run.app.screen.update()
        await run.pilot.pause()
        assert "froze ctx" in shown.text  # type: ignore[attr-defined]
        await run.press("escape")
        assert run.app.screen is run.dashboard


async def test_overlong_dialog_says_how_to_read() -> None:
    async with session((80, 24)) as run:
        text: list[Line] = [(("one line", "text"),)] * 100
        await run.app.push_screen(TextDialog("Title", DialogLines(lambda _: text)))
        await run.pilot.pause()
        box = run.app.screen.query_one("#dialog")
        assert str(box.border_subtitle) == "↑↓ scroll · esc closes"
    async with session((160, 50)) as run:
        await run.press("enter")
        assert str(run.app.screen.query_one("#dialog").border_subtitle) == "esc closes"


@pytest.mark.parametrize("size", SIZES)
async def test_dialog_stays_as_text_grows(size: tuple[int, int]) -> None:
    text: list[Line] = [(("one line", "text"),)]
    async with session(size) as run:
        await run.app.push_screen(TextDialog("Title", DialogLines(lambda _: text)))
        await run.pilot.pause()
        box = run.app.screen.query_one("#dialog")
        before = box.region
        text *= 100
        run.app.screen.update()  # type: ignore[attr-defined]
        await run.pilot.pause()
        assert box.region.height > before.height
        assert box.region.offset == before.offset
        assert 0 < box.region.y < box.region.bottom < size[1], "header and keys stay in sight"


async def test_the_palette_finds_every_action() -> None:
    async with session() as run:
        palette = await run.palette()
        titles = {title.split("  ")[0] for title in palette}
        of_columns = {title for title in titles if title.startswith(("Show column", "Hide column"))}
        assert titles - of_columns == {
            action.title for action in ACTIONS if action.in_palette and action.scope != "replay"
        }
        assert len(of_columns) == len(ALL_COLUMNS)
        assert {"Freeze or unfreeze", "Fold all", "Next problem", "Light or dark"} <= titles
        before = len(run.dashboard.tree_view.rows)
        await palette["Fold all  -"]()
        assert len(run.dashboard.tree_view.rows) < before


@pytest.mark.parametrize("typed", ["light or dark", "fold all", "pause or resume"])
async def test_command_of_palette_does_what_its_key_does(typed: str) -> None:
    key = {"light or dark": "ctrl+t", "fold all": "minus", "pause or resume": "p"}[typed]

    def seen(run: Session) -> tuple[object, ...]:
        return run.app.theme, len(run.dashboard.tree_view.rows), list(run.sink.submitted)

    after = []
    for keys in ((key,), ("ctrl+p", *(letter if letter != " " else "space" for letter in typed), "enter")):
        async with session() as run:
            before = seen(run)
            await run.press(*keys)
            for _ in range(100):
                if seen(run) != before:
                    break
                await run.pilot.pause()
            after.append(seen(run))
            assert run.app.screen is run.dashboard
            assert seen(run) != before
    assert after[0] == after[1]


async def test_columns_are_hidden_and_shown_in_the_palette() -> None:
    async with session((160, 50)) as run:

        def titles() -> list[str]:
            return run.dashboard.pane.query_one(ColumnTitles).text.split()

        assert "‖grad‖" in titles()
        assert "type" not in titles()
        (await run.palette())["Hide column ‖grad‖"]()
        await run.pilot.pause()
        assert "‖grad‖" not in titles()
        (await run.palette())["Show column type"]()
        await run.pilot.pause()
        assert "type" in titles()
        assert {"Hide column type", "Show column ‖grad‖"} <= set(await run.palette())


# A step taken apart


async def test_t_profiles_step_and_shows_it() -> None:
    async with session() as run:
        await run.press("t")
        assert run.sink.submitted == [TraceStep(1, runs_step=True)]
        dialog = run.app.screen
        assert isinstance(dialog, StepDialog)
        shown = dialog.query_one(DialogLines)
        assert "Waiting" in shown.text
        modules = len(run.app.run_state.tree.modules)
        await run.put(
            ev.CommandApplied(2.0, 40, TraceStep(1), "profile the memory of the next step", ()),
            ev.StepMemoryProfiled(
                2.0, 41, (100, 300, 200), 3, ((Phase.FORWARD, 0), (Phase.BACKWARD, 1)), 300, Phase.BACKWARD, -1,
                (Holding("other", -1, 300, 0),), (None,) * modules, True,
            ),
        )  # fmt: skip
        assert "Step 41" in shown.text
        assert "Waiting" not in shown.text
        await run.press("escape", "t")
        again = run.app.screen.query_one(DialogLines)
        assert "Waiting" in again.text, "the step that was asked for is not the one that is shown"
        assert "Step 41" in again.text
        await run.press("escape")
        assert run.app.screen is run.dashboard


async def test_t_while_paused_says_it_stepped() -> None:
    async with session() as run:
        await run.put(ev.PauseChanged(1.5, 40, True))
        await run.press("t")
        assert run.sink.submitted == [TraceStep(1, runs_step=True)]
        shown = run.app.screen.query_one(DialogLines)
        assert "this runs one step" in " ".join(shown.text.split())
        await run.put(
            ev.CommandApplied(2.0, 40, TraceStep(1, runs_step=True), "profile the memory of the next step", ()),
            ev.PauseChanged(2.0, 40, False),
            ev.StepMemoryProfiled(
                2.0, 41, (100, 300, 200), 3, ((Phase.FORWARD, 0), (Phase.BACKWARD, 1)), 300, Phase.BACKWARD, -1,
                (Holding("other", -1, 300, 0),), (None,) * len(run.app.run_state.tree.modules), True,
            ),
            ev.PauseChanged(2.0, 41, True),
        )  # fmt: skip
        assert "gradtui ran this one step" in " ".join(shown.text.split())
        texts = [entry.text for entry in run.app.run_state.log]
        assert texts.count("paused") == 2
        assert "running" not in texts


async def test_unprofilable_step_closes_dialog_with_reason() -> None:
    async with session() as run:
        await run.press("t")
        await run.put(ev.CommandRejected(2.0, 41, TraceStep(1), "the models are on cuda"))
        assert run.app.screen is run.dashboard
        assert any("cannot profile" in n.text for n in run.said)


# Leaving


@pytest.mark.parametrize(("key", "result", "sent"), [("s", "stop", [StopTraining(1)]), ("l", "leave", [])])
async def test_leaving_asks_and_says_how(key: str, result: str, sent: list[object]) -> None:
    async with session() as run:
        await run.press("q")
        assert isinstance(run.app.screen, LeaveDialog)
        await run.press(key)
        assert run.app.return_value == result
        assert run.sink.submitted == sent


async def test_enter_on_first_answer_lets_training_run_on() -> None:
    async with session() as run:
        await run.press("q", "enter")
        assert run.app.return_value == "leave"
        assert run.sink.submitted == []


@pytest.mark.parametrize("keys", [("K", "K"), ("j", "j", "enter", "enter"), ("K", "enter")])
async def test_kill_takes_two_presses(keys: tuple[str, ...]) -> None:
    async with session() as run:
        await run.press("q", *keys[:-1])
        assert run.kills == []
        assert isinstance(run.app.screen, LeaveDialog)
        assert "Press K again" in "".join(run.lines)
        await run.press(keys[-1])
        assert run.kills == [True]
        assert run.app.is_running
        assert run.sink.submitted == []
        assert "SIGTERM" in run.said[-1].text


async def test_another_row_takes_the_first_press_back() -> None:
    async with session() as run:
        await run.press("q", "K", "up")
        assert "Press K again" not in "".join(run.lines)
        await run.press("K")
        assert run.kills == []
        await run.put(ev.RunEnded(9.0, 40, 0, None))
        await run.press("K")
        assert run.kills == []
        assert run.app.is_running


@pytest.mark.parametrize("key", ["escape", "q"])
async def test_staying(key: str) -> None:
    async with session() as run:
        await run.press("q", key)
        assert run.app.screen is run.dashboard
        assert run.app.return_value is None


@pytest.mark.parametrize("before", ["paused", "pausing"])
async def test_leaving_a_held_run_lets_it_go_on(before: str) -> None:
    async with session() as run:
        if before == "paused":
            await run.put(ev.PauseChanged(2.0, 40, True))
        else:
            await run.press("p")
        await run.press("q", "l")
        assert isinstance(run.sink.submitted[-1], Resume)


async def test_when_the_run_has_ended_leaving_asks_nothing() -> None:
    async with session(events=[*coop_run(5), ev.RunEnded(9.0, 5, 0, None)]) as run:
        await run.press("q")
        assert run.app.return_value == "ended"


async def test_question_whether_to_leave_changes_as_run_ends() -> None:
    async with session() as run:
        await run.press("q")
        assert isinstance(run.app.screen, LeaveDialog)
        await run.put(ev.RunEnded(9.0, 40, 0, None))
        assert isinstance(run.app.screen, LeaveDialog)
        options = run.app.screen.query_one("#answers", OptionList)
        assert [option.id for option in options.options] == ["leave", "stay"]
        assert "ended" in str(run.app.screen.query_one("#question").border_title)
        await run.press("enter")
        assert run.app.return_value == "ended"
        assert run.sink.submitted == []


async def test_staying_user_stays_as_run_ends() -> None:
    async with session() as run:
        await run.press("q", "up")
        await run.put(ev.RunEnded(9.0, 40, 0, None))
        await run.press("enter")
        assert run.app.screen is run.dashboard
        assert run.app.is_running
