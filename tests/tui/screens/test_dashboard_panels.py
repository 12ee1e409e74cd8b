"""The panels of the dashboard: which are in sight, and how they follow the run."""

from __future__ import annotations

import pytest
from helpers import step_memory
from helpers.app_session import session
from helpers.fakes import (
    PrintedLog,
    coop_model,
    coop_states,
    training_step,
)

from gradtui.protocol import events as ev
from gradtui.protocol.forecasts import ForecastMade
from gradtui.protocol.operations import Operation, OperationsRecorded, RecordedTensor
from gradtui.tui.panels import why as why_panel
from gradtui.tui.screens.panel_layout import PanelLayout

MODEL = coop_model()
ERROR = 'Traceback (most recent call last):\n  File "train.py", line 3\nValueError: bad batch'


async def test_narrow_screen_shows_panels_and_tab() -> None:
    async with session((80, 24)) as run:
        board = run.dashboard
        panels = (board.gradients, board.memory, board.why, board.output, board.events, board.changes)
        always, seen = ["gradients", "memory", "why"], []
        for _ in range(4):
            assert board.tree_view.has_focus
            seen.append([panel.id for panel in panels if panel.display])
            await run.press("tab")
        assert seen == [[*always, "output"], [*always, "events"], [*always, "changes"], [*always, "output"]]


async def test_a_low_screen_shows_curves_or_memory() -> None:
    async with session((80, 14)) as run:
        board = run.dashboard
        assert [board.gradients.display, board.memory.display, board.why.display] == [True, False, False]
        await run.press("m")
        assert [board.gradients.display, board.memory.display] == [False, True]


@pytest.mark.parametrize("size", [(160, 50), (120, 36), (100, 30), (80, 24), (80, 40), (60, 20), (80, 12)])
async def test_panels_fill_the_screen_and_do_not_overlap(size: tuple[int, int]) -> None:
    async with session(size) as run:
        board = run.dashboard
        shown = [board.pane, *(panel for panel in board.query("#body > LineView") if panel.display)]
        regions = [panel.region for panel in shown]
        cells = [(x, y) for region in regions for x in range(region.x, region.right) for y in region.line_range]
        assert len(cells) == len(set(cells))
        assert len(cells) == size[0] * (size[1] - 3)


async def test_wide_screen_shows_both_and_changes() -> None:
    async with session((120, 36)) as run:
        board = run.dashboard
        assert board.memory.display
        assert board.gradients.display
        assert (board.output.display, board.events.display) == (True, False)
        await run.press("tab")
        assert (board.output.display, board.events.display) == (False, True)
        assert "started demos/coop_like.py" in board.events.text


async def test_resizing_changes_the_layout_and_keeps_everything_alive() -> None:
    async with session((120, 36)) as run:
        for size in ((80, 24), (40, 10), (20, 5), (200, 60), (99, 30), (100, 30), (100, 29), (160, 24)):
            await run.pilot.resize_terminal(*size)
            await run.pump()
            assert run.dashboard.has_class("-wide" if size[0] >= 100 and size[1] >= 30 else "-narrow")
        assert "CoOp" in run.dashboard.tree_view.text


async def test_hidden_panels_do_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session((80, 24)) as run:
        for panel in (run.dashboard.changes, run.dashboard.events):
            monkeypatch.setattr(panel, "lines_for", lambda *_: pytest.fail("drawn while hidden"))
        states, _ = coop_states(MODEL)
        await run.put(*training_step(MODEL, states, 41))
        assert {"changes", "events"}.isdisjoint(run.dashboard.visible_parts())


async def test_total_beside_row_is_of_same_step() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.pump()
        both = run.dashboard.gradients.text.splitlines()[0]
        await run.put(ev.GradientsMeasured(9.0, 41, 1e-9, None, None))
        assert run.dashboard.gradients.text.splitlines()[0] == both
        await run.go_to("")
        await run.pump()
        # The norms in the tree are of the step before that.
        assert "step 40" in run.dashboard.gradients.text.splitlines()[0]
        rows = tuple(1e-9 for _ in run.app.run_state.tree.parameters)
        await run.put(ev.GradientsMeasured(9.1, 42, 2e-9, None, rows))
        assert "2.0e-9" in run.dashboard.gradients.text.splitlines()[0]


@pytest.mark.parametrize("size", [(80, 24), (81, 24), (160, 24), (99, 30), (100, 30), (160, 50)])
async def test_progress_bar_fits_in_one_line(size: tuple[int, int]) -> None:
    bar = "#" * PanelLayout(*size).output_columns
    async with session(size, log=PrintedLog(bar)) as run:
        await run.press("o")
        assert run.dashboard.output.text.split() == [bar]


def test_on_high_screen_rows_go_to_curves() -> None:
    usual, high = PanelLayout(120, 36), PanelLayout(160, 50)
    assert high.rows[2] == usual.rows[2]
    assert high.curve_rows - usual.curve_rows == 8
    assert high.curve_rows > high.rows[0] // 2


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (120, 36), (160, 50)])
async def test_the_curves_have_steps_on_their_axis(size: tuple[int, int]) -> None:
    async with session(size) as run:
        lowest = run.dashboard.gradients.text.splitlines()[-1]
        assert {"10", "20", "30", "40"} & set(lowest.replace("─", " ").replace("└", " ").split())


async def test_output_follows_its_end_until_one_scrolls_away() -> None:
    log = PrintedLog(*(f"line {number}" for number in range(50)))
    async with session(log=log) as run:
        assert "line 49" in run.dashboard.output.text
        await run.press("shift+tab", "shift+tab", "pageup")
        held = run.dashboard.output.text
        log.add("line 50")
        await run.pump()
        assert run.dashboard.output.text == held
        await run.press("end")
        await run.pump()
        assert "line 50" in run.dashboard.output.text
        await run.press("shift+tab")
        assert run.dashboard.tree_view.has_focus


async def test_phase_is_chosen_by_keys_and_by_click() -> None:
    async with session() as run:
        memory = run.dashboard.memory
        assert "end of forward" in memory.text
        await run.press("m", "m", "down")
        assert memory.has_focus
        assert "end of backward" in memory.text
        assert run.row == "", "the tree's cursor stays"
        row = next(y for y, line in enumerate(memory.text.splitlines()) if "load" in line)
        await run.pilot.click(memory, offset=(20, row + 1))
        await run.pilot.pause()
        assert "end of load" in memory.text
        await run.press("escape", "down")
        assert run.row == "ctx"
        assert "end of load" in memory.text, "the choice stays"


async def test_m_turns_through_memory_views() -> None:
    async with session((160, 50)) as run:
        memory = run.dashboard.memory
        curve = memory.text
        await run.press("m")
        assert memory.has_focus
        await run.put(step_memory.events(40)[-1])
        assert "over steps" in str(memory.border_title)
        assert {"highest", "total"} <= set(memory.text.splitlines()[0].replace(":", " ").split())
        await run.press("m")
        assert [line.split()[0] for line in memory.text.splitlines()[:2]] == ["load", "▸forward"]
        assert "by phase" in str(memory.border_title)
        await run.press("m")
        assert memory.text != curve, "the newest totals have come"
        assert "end of forward" in memory.text
        assert "by phase" not in str(memory.border_title)


async def test_keys_move_through_panels_that_take_them() -> None:
    async with session() as run:
        board = run.dashboard
        stops = []
        for _ in range(4):
            stops.append(board.focused)
            await run.press("shift+tab")
        assert stops == [board.tree_view, board.memory, board.output, board.tree_view]
        await run.press("m", "escape")
        assert board.tree_view.has_focus


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_a_script_that_fails_shows_its_traceback(size: tuple[int, int]) -> None:
    async with session(size) as run:
        await run.press("v")
        await run.put(ev.RunEnded(9.0, 40, 1, ERROR))
        await run.pump()
        assert run.dashboard.output.display
        assert "ValueError: bad batch" in run.dashboard.output.text
        assert "exit code 1" in run.dashboard.output.text
        assert "failed" in run.dashboard.header.text


async def test_raising_explanation_costs_its_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("float division by zero")

    async with session() as run:
        monkeypatch.setattr(why_panel, "why", broken)
        await run.press("down", "p")
        await run.put(ev.PauseChanged(9.0, 40, paused=True))
        assert "float division by zero" in run.dashboard.why.text
        assert "paused" in run.dashboard.header.text


async def test_curves_follow_cursor_moved_by_filter() -> None:
    async with session() as run:
        await run.press("slash", *"blocks.7")
        assert "blocks.7" in run.row
        for keys in ((), ("down", "down"), ("enter",)):
            await run.press(*keys)
            selection = run.dashboard.gradients.selection
            assert selection.name == run.row
            assert str(run.dashboard.why.border_title).startswith(f"{run.row} · ")


async def test_explanation_says_it_waits_for_forecast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(why_panel, "monotonic", lambda: now[0])
    async with session() as run:
        tensors = (RecordedTensor((1,), (1,), "float32", 4),)
        operations = (Operation("aten.neg.default", (), (), (0,), True, 0),)
        await run.put(OperationsRecorded(4.0, 40, tensors, operations, (0,)))
        await run.press("slash", *"blocks.7", "enter")
        tree, why = run.app.run_state.tree, run.dashboard.why

        def title() -> str:
            why.update()
            return str(why.border_title)

        plain, asked = title(), run.planner.single[-1]
        now[0] += 0.29
        # Another event does not restart the time.
        await run.put(*training_step(MODEL, coop_states(MODEL)[0], 41))
        assert title() == plain
        now[0] += 0.02
        assert title() == f"{plain} · forecasting…"
        while True:
            made = ForecastMade(4.0, 40, tree.trainable, tree.checkpointed, asked.change, 0, 0, is_final=True)
            await run.put(made)
            # The next question has a time of its own.
            assert title() == plain
            if asked.then is None:
                break
            asked = asked.then
        now[0] += 9.0
        assert title() == plain
