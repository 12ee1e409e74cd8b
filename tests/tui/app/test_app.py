"""The app: it takes in what arrives, redraws what changed, and survives what breaks."""

from __future__ import annotations

import asyncio
import pickle
import socket

import pytest
from helpers.app_session import Session, session
from helpers.fakes import (
    RecordingSink,
    ScriptedSource,
    coop_model,
    coop_run,
    coop_states,
    row_of,
    training_step,
)
from rich.segment import Segment
from textual.color import Color
from textual.geometry import Region

from gradtui.configuration.choices import COLUMNS
from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.run_state import RunState
from gradtui.tui.app.app import GradtuiApp
from gradtui.tui.charts.chart import LABEL_WIDTH
from gradtui.tui.charts.pictures import Pictures
from gradtui.tui.charts.plot_server import MessageReader, PlotServer, packed
from gradtui.tui.panels import curves
from gradtui.tui.panels.curves import run_curves
from gradtui.tui.rendering import DARK_THEME, LIGHT_THEME
from gradtui.tui.tree.tree_columns import ALL_COLUMNS as ALL_TREE_COLUMNS
from gradtui.tui.tree.tree_columns import COLUMNS as TREE_COLUMNS

MODEL = coop_model()
SIZES = [(80, 24), (100, 30), (160, 50)]


@pytest.mark.parametrize("size", SIZES)
async def test_the_run_is_on_the_screen(size: tuple[int, int]) -> None:
    async with session(size) as run:
        shown = run.dashboard.header.text + run.dashboard.tree_view.text
        for part in ("coop_like.py", "40", "24.1/s", "CoOp", "ctx", "text_encoder"):
            assert part in shown
        assert "param 26.0" in run.dashboard.memory.text or "parameters 26.0" in run.dashboard.memory.text


async def test_asked_state_includes_arrived_events() -> None:
    async with session() as run:
        states, _ = coop_states(MODEL)
        run.source.put(*training_step(MODEL, states, 41))
        assert run.app.look(lambda state: state.step) == 41


async def test_nothing_is_repainted_when_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session() as run:
        await run.pump()
        repainted: list[object] = []
        board = run.dashboard
        for view in (board.header, board.tree_view, board.memory, board.gradients, board.output):
            monkeypatch.setattr(view, "refresh", lambda *regions, **_: repainted.append(regions))
        await run.pump()
        monkeypatch.undo()
        assert repainted == []


async def test_only_rows_that_changed_are_repainted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session() as run:
        rows: list[int] = []

        def repainted(*regions: Region, **_: object) -> None:
            rows.extend(y for region in regions for y in region.line_range)

        monkeypatch.setattr(run.dashboard.tree_view, "refresh", repainted)
        states, _ = coop_states(MODEL)
        await run.put(*training_step(MODEL, states, 41))
        tree = run.dashboard.tree_view
        monkeypatch.undo()
        assert sorted(rows) == sorted(tree.rows.position(row_of(MODEL, path)) for path in ("", "ctx"))  # type: ignore[type-var]


async def test_failed_allocation_is_told_and_stays() -> None:
    box = ev.OutOfMemory(
        2.0, 41, 1, "cuda:0", "", 1 << 30, Phase.FORWARD, "text_encoder.blocks.3", (("activations", 3 << 30),), 3 << 30, (),
        True, "/state/run-out-of-memory-1.txt", None,
    )  # fmt: skip
    said = (
        "CUDA out of memory in text_encoder.blocks.3 (forward): 3.0 GiB activations; 1.0 GiB more were requested; "
        "written to /state/run-out-of-memory-1.txt"
    )
    async with session() as run:
        await run.put(box, ev.RunEnded(2.1, 41, 1, "torch.OutOfMemoryError: CUDA out of memory.\n"))
        told = "CUDA out of memory in text_encoder.blocks.3 (forward); the events list what used it"
        assert [note.text for note in run.said] == [told]
        await run.press("v")
        assert said in " ".join(run.dashboard.events.text.split())


async def test_ctrl_c_interrupts_script_and_not_screen() -> None:
    async with session() as run:
        await run.press("ctrl+c")
        assert run.interrupts == [True]
        assert run.app.return_value is None
        await run.press("slash", "ctrl+c", "escape", "question_mark", "ctrl+c")
        assert len(run.interrupts) == 3


async def test_the_theme_changes_and_lines_with_it() -> None:
    async with session() as run:
        before = run.dashboard.tree_view.render_line(0)
        await run.press("ctrl+t")
        assert not run.app.current_theme.dark
        assert run.dashboard.tree_view.render_line(0) != before
        for over in ("g", "question_mark"):
            await run.press(over, "ctrl+t")
            assert run.app.screen is not run.dashboard
        assert not run.app.current_theme.dark
        await run.press("ctrl+t")
        assert run.app.current_theme.dark


@pytest.mark.parametrize("part", ["tree", "memory", "gradients", "output"])
async def test_raising_panel_shows_error_alone(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with session() as run:
        board = run.dashboard
        view = {"tree": board.tree_view, "memory": board.memory, "gradients": board.gradients, "output": board.output}[
            part
        ]

        def broken(*_: int) -> list[object]:
            raise ZeroDivisionError("on purpose")

        monkeypatch.setattr(view, "lines_for", broken)
        await run.pump()
        assert "this panel failed: ZeroDivisionError: on purpose" in view.text
        monkeypatch.undo()
        await run.pump()
        assert "failed" not in view.text


async def test_part_raising_before_drawing_shows_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session() as run:
        monkeypatch.setattr(run.dashboard.tree_view.totals, "update", lambda _: 1 / 0)
        await run.pump()
        assert "ZeroDivisionError" in run.dashboard.tree_view.text


async def test_unknown_event_is_noted_and_rest_runs() -> None:
    states, _ = coop_states(MODEL)
    broken = ev.ParametersClassified(1.0, 40, None, "")  # type: ignore[arg-type]
    async with session() as run:
        await run.put(broken, *training_step(MODEL, states, 41))
        assert "ParametersClassified" in run.app.run_state.problems["screen"].error
        assert "step 41" in run.dashboard.header.text


async def test_clock_drains_and_stops_with_app(monkeypatch: pytest.MonkeyPatch) -> None:
    app = GradtuiApp(ScriptedSource(coop_run(5)), RecordingSink(), refresh_hz=200)
    shown = asyncio.Event()
    draw = app.dashboard.draw

    def draw_and_look(part: str) -> None:
        draw(part)
        if app.run_state.step == 5 and "CoOp" in app.dashboard.tree_view.text:
            shown.set()

    monkeypatch.setattr(app.dashboard, "draw", draw_and_look)
    async with app.run_test():
        await asyncio.wait_for(shown.wait(), 20)
        app.exit("leave")
    assert app.return_value == "leave"


async def test_picture_of_plot_server_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    reader, collected = MessageReader(), asyncio.Event()

    def answer() -> None:
        for number, payload in reader.feed(theirs.recv(1 << 20)):
            layout = pickle.loads(payload).layout
            picture = "\n".join(["drawn".ljust(layout.columns + LABEL_WIDTH + 1)] * (layout.rows + 2))
            theirs.sendall(packed(number, picture.encode()))

    # The first tick comes after two seconds.
    app = GradtuiApp(
        ScriptedSource(coop_run(5)), RecordingSink(), refresh_hz=0.5, pictures=Pictures(PlotServer(ours, 0))
    )
    collect = app.dashboard.collect_pictures
    monkeypatch.setattr(app.dashboard, "collect_pictures", lambda: (collect(), collected.set()))
    async with app.run_test(size=(160, 50)):
        asyncio.get_running_loop().add_reader(theirs, answer)
        app.pump()
        await asyncio.wait_for(collected.wait(), 20)
        assert "drawn" in app.dashboard.gradients.text
        asyncio.get_running_loop().remove_reader(theirs)
    ours.close()
    theirs.close()


async def test_the_theme_that_the_user_chooses_is_remembered() -> None:
    async with session() as run:
        assert run.remembered == []
        await run.press("ctrl+t")
        await run.press("ctrl+t")
        run.app.theme = "nord"
        await run.pilot.pause()
        assert run.remembered == ["gradtui-light", "gradtui-dark", "nord"]


@pytest.mark.parametrize(("theme", "shown"), [("nord", "nord"), ("no such theme", "gradtui-dark")])
def test_the_theme_at_the_start(theme: str, shown: str) -> None:
    assert GradtuiApp(ScriptedSource(()), RecordingSink(), theme=theme).theme == shown


def test_the_columns_and_the_order_of_the_tree() -> None:
    tree = GradtuiApp(ScriptedSource(()), RecordingSink()).dashboard.tree_view
    assert (tree.chosen_columns, tree.order) == (TREE_COLUMNS, "execution")
    assert {*TREE_COLUMNS, "lr", "ranks"} == set(ALL_TREE_COLUMNS) == set(COLUMNS)
    app = GradtuiApp(ScriptedSource(()), RecordingSink(), columns=("bytes", "norm"), order="registration")
    assert (app.dashboard.tree_view.chosen_columns, app.dashboard.tree_view.order) == (
        ("bytes", "norm"),
        "registration",
    )


async def test_no_cell_keeps_ground_of_theme_before() -> None:
    dark, light = (Color.parse(theme.background or "").rich_color for theme in (DARK_THEME, LIGHT_THEME))
    async with session((80, 24)) as run:
        before = {segment.style.bgcolor for segment in drawn_segments(run) if segment.style is not None}
        await run.press("ctrl+t")
        after = {segment.style.bgcolor for segment in drawn_segments(run) if segment.style is not None}
        assert dark in before
        assert light in after
        assert before.isdisjoint(after)


def drawn_segments(run: Session) -> list[Segment]:
    return [segment for strip in run.app.screen._compositor.render_strips() for segment in strip]


async def test_key_draws_curve_of_another_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[RunState] = []
    async with session() as run:
        panel, redrawn = run.dashboard.gradients, list[str]()
        redraw = panel.redraw
        monkeypatch.setattr(panel, "redraw", lambda: (redrawn.append(run.row), redraw()))
        monkeypatch.setattr(curves, "run_curves", lambda state: (made.append(state), run_curves(state))[1])
        await run.press("down")
        assert panel.selection.name in panel.text
        await run.press("down")
        run.dashboard.select()
        assert len(redrawn) == len({*redrawn}) == 2
        assert made == []
        await run.pump()
        assert len(made) == 1
