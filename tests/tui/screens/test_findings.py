"""Findings on the screen: the line under the header, the list, the pages, the marks and the keys."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from helpers.app_session import Session, session
from helpers.fakes import PrintedLog, RecordingSink, ScriptedSource, coop_run, finding
from helpers.lines import line_text
from textual.pilot import Pilot

from gradtui.protocol import events as ev
from gradtui.protocol.call_order import AccumulationWindow, CallOrderMeasured
from gradtui.run.state.findings import Finding, Level, Status
from gradtui.tui.app.app import GradtuiApp
from gradtui.tui.rendering.palette import DARK_THEME, LIGHT_THEME
from gradtui.tui.screens.findings import FindingDialog, FindingListDialog
from gradtui.tui.screens.output import OutputScreen
from gradtui.tui.widgets import LineView

ORPHANS = tuple(f"text_encoder.blocks.{block}.ln_1.weight" for block in range(8))
IN_NONE = finding(
    "GT106", message=f"{ORPHANS[0]} and 7 more (2,048 elements) are trainable and in no optimizer: they never move",
    why="only an optimizer that has a parameter moves it", remedy="create the optimizer after the last change of the model",
    first_step=5, paths=ORPHANS, evidence={"tensors": 8, "elements": 2_048}, command=f"unfreeze {ORPHANS[0]}",
)  # fmt: skip
KEPT = finding(
    "GT203", message="nothing cleared the gradients in 120 steps of SGD: each step applies those of all steps before it again",
    why="backward() adds to .grad", remedy="call optimizer.zero_grad() once before or after each step",
    evidence={"steps": 120, "zero_grad_calls": 0}, file="demos/coop_like.py", line=48,
)  # fmt: skip
LOOSE = finding("GT205", Level.WARNING, "the loss is not divided by 4", status=Status.SUSPECTED, first_step=8)
OVER = finding("GT401", message="CoOp trains in eval mode since step 3", first_step=3, cleared_step=30)
ALL = [IN_NONE, KEPT, LOOSE, OVER]


async def show(run: Session, *findings: Finding) -> None:
    run.app.run_state.findings = list(findings)
    await run.pump()


def shown(run: Session) -> str:
    return run.app.screen.query_one("#dialog-lines", LineView).text


def heights(run: Session) -> list[int]:
    dashboard = run.dashboard
    return [view.region.y for view in (dashboard.pane, dashboard.memory, dashboard.gradients, dashboard.output)]


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 50)])
async def test_line_is_always_there_and_moves_no_panel(size: tuple[int, int]) -> None:
    async with session(size) as run:
        before = heights(run)
        assert run.dashboard.finding.text.strip() == "✔ no findings"
        await show(run, KEPT)
        assert run.dashboard.finding.region.y == 1
        assert run.dashboard.finding.text.startswith(" error GT203 ")
        assert heights(run) == before
        await show(run, replace(KEPT, cleared_step=41))
        assert run.dashboard.finding.text.startswith(" ✔ no findings · 1 cleared ")
        assert heights(run) == before


async def test_line_shows_gravest_that_is_confirmed_and_open() -> None:
    async with session() as run:
        warning = replace(LOOSE, status=Status.CONFIRMED)
        await show(run, warning, OVER, replace(KEPT, status=Status.SUSPECTED))
        assert run.dashboard.finding.text.startswith(" warning GT205 ")
        await show(run, warning, OVER, KEPT)
        assert run.dashboard.finding.text.startswith(" error GT203 ")
        assert "! next  d all 2" in run.dashboard.finding.text


async def test_events_of_the_run_bring_the_line() -> None:
    async with session((80, 24)) as run:
        windows = (AccumulationWindow(0, 1, 0, 1, 1, True, 39, 2, 40),)
        order = CallOrderMeasured(
            9.0, 40, windows, ((0, 1),), clears=0, leaf_backwards=0, skips_in_a_row=0, clips=0, scaled_clips=0,
            gradients_compared=((0, 39, 0),), gradients_used=0, gradients_unused=0, gradients_replaced=0,
            loss_is_scaled=None, eval_mode=(), unused_eval_graphs=0, sites=(),
        )  # fmt: skip
        await run.put(order)
        assert run.dashboard.finding.text.startswith(" error GT203 ")
        await run.press("v")
        assert "! step 40" in run.dashboard.events.text
        assert "error GT203" in run.dashboard.events.text


async def test_list_is_newest_first_with_status() -> None:
    async with session() as run:
        await show(run, *ALL)
        await run.press("d")
        assert isinstance(run.app.screen, FindingListDialog)
        heads = [line.split()[:3] for line in shown(run).splitlines() if "GT" in line]
        assert heads == [
            ["suspected", "warning", "GT205"],
            ["open", "error", "GT106"],
            ["cleared", "error", "GT401"],
            ["open", "error", "GT203"],
        ]
        assert "2 open · 1 suspected" in str(run.app.screen.query_one("#dialog").border_title)
        await run.press("d")
        assert run.app.screen is run.dashboard


async def test_an_empty_list_says_so() -> None:
    async with session() as run:
        await run.press("d")
        assert "No rule has found anything wrong" in shown(run)
        await run.press("enter", "down", "escape")
        assert run.app.screen is run.dashboard


async def test_enter_opens_page_then_first_row() -> None:
    async with session() as run:
        await show(run, *ALL)
        await run.press("minus", "d", "down", "enter")
        assert isinstance(run.app.screen, FindingDialog)
        assert "gradtui explain GT106" in shown(run)
        assert f"unfreeze {ORPHANS[0]}" in shown(run)
        assert "goes to its row" in str(run.app.screen.query_one("#dialog").border_subtitle)
        await run.press("escape")
        assert isinstance(run.app.screen, FindingListDialog)
        await run.press("enter", "enter")
        assert run.app.screen is run.dashboard
        assert run.row == ORPHANS[0]


async def test_full_output_goes_to_row_too() -> None:
    async with session(log=PrintedLog("a line")) as run:
        await show(run, *ALL)
        await run.press("minus", "o")
        assert isinstance(run.app.screen, OutputScreen)
        await run.press("d", "down", "enter", "enter")
        assert run.app.screen is run.dashboard
        assert run.row == ORPHANS[0]


async def test_page_without_row_goes_back_to_list() -> None:
    async with session() as run:
        await show(run, KEPT)
        await run.press("d", "enter")
        assert "row" not in str(run.app.screen.query_one("#dialog").border_subtitle)
        await run.press("enter")
        assert isinstance(run.app.screen, FindingListDialog)


async def test_list_and_page_keep_up_with_run() -> None:
    async with session() as run:
        await show(run, *ALL)
        await run.press("d", "end")
        newer = finding("GT301", message="graphs of 12 forwards are alive", first_step=9)
        await show(run, newer, IN_NONE, replace(KEPT, last_step=77), OVER)
        assert shown(run).split()[2] == "GT301"
        await run.press("enter")
        assert "GT203" in shown(run), "the cursor has stayed on its finding"
        assert "last seen at step 77" in shown(run)
        await show(run, newer, IN_NONE, replace(KEPT, cleared_step=80), OVER)
        assert "until step 80" in shown(run)
        assert "error, cleared" in str(run.app.screen.query_one("#dialog").border_title)


async def test_suspicion_that_ends_while_its_page_is_open() -> None:
    async with session() as run:
        await show(run, LOOSE)
        await run.press("d", "enter")
        await show(run)
        assert "no longer suspected" in shown(run)
        await run.press("escape", "escape")
        assert run.app.screen is run.dashboard


async def test_key_goes_through_open_findings() -> None:
    async with session() as run:
        # Of one level, the earlier one comes first.
        await show(run, IN_NONE, KEPT, LOOSE, OVER)
        await run.press("minus", "exclamation_mark")
        assert isinstance(run.app.screen, FindingDialog)
        assert "GT203" in shown(run)
        await run.press("escape", "exclamation_mark")
        assert run.app.screen is run.dashboard
        assert run.row == ORPHANS[0]
        await run.press("exclamation_mark")
        assert "GT203" in shown(run)
        await run.go_to("ctx")
        await run.press("exclamation_mark")
        assert run.app.screen is run.dashboard, "the same key goes on from a page"
        assert run.row == ORPHANS[0]


async def test_next_finding_returns_from_page() -> None:
    async with session() as run:
        await show(run, *ALL)
        await run.press("d", "enter", "exclamation_mark")
        assert isinstance(run.app.screen, FindingListDialog)


async def test_plots_show_line_too_and_move_to_row() -> None:
    async with session() as run:
        await run.press("g")
        plots = run.dashboard.plots
        assert plots.finding.text.strip() == "✔ no findings"
        await show(run, IN_NONE)
        assert plots.finding.text.startswith(" error GT106 ")
        await run.pilot.click("#finding")
        await run.press("enter")
        assert run.app.screen is plots
        assert run.row == ORPHANS[0]
        await run.press("d", "escape", "escape")
        assert run.app.screen is run.dashboard


async def test_a_row_says_which_finding_concerns_it() -> None:
    async with session() as run:
        await show(run, IN_NONE)
        await run.press("exclamation_mark")
        line = next(line for line in run.dashboard.tree_view.lines if any("@cursor" in role for _, role in line))
        assert line_text(line).startswith("!")
        await run.press("enter")
        assert "error GT106" in shown(run)


async def test_a_click_on_the_line_opens_its_page() -> None:
    async with session() as run:
        await show(run, *ALL)
        await run.pilot.click("#finding")
        assert isinstance(run.app.screen, FindingDialog)
        assert "GT203" in shown(run)


async def test_clicks_select_and_open_an_entry() -> None:
    async with session() as run:
        await show(run, OVER, KEPT)
        await run.press("d")
        # The border, the two lines of GT401, and the first line of GT203.
        await run.pilot.click("#dialog-lines", offset=(3, 2))
        assert isinstance(run.app.screen, FindingListDialog)
        await run.pilot.click("#dialog-lines", offset=(3, 2))
        assert "GT203" in shown(run)


async def test_a_long_list_scrolls_to_the_cursor() -> None:
    async with session((80, 24)) as run:
        await show(run, *(replace(LOOSE, key=str(n), message=f"number {n}", first_step=100 - n) for n in range(30)))
        await run.press("d")
        assert "number 0" in shown(run)
        assert "number 29" not in shown(run)
        await run.press("end")
        assert "number 29" in shown(run)
        await run.press("pageup", "up")
        await run.press("home")
        assert "number 0" in shown(run)


def links(run: Session) -> set[str | None]:
    """The addresses of the links of a dialog, as Textual passes them to the terminal."""
    view = run.app.screen.query_one("#dialog-lines", LineView)
    strips = [view.render_line(y) for y in range(view.content_size.height)]
    return {each.style.link for strip in strips for each in strip if each.style is not None} - {None}


async def test_place_of_a_finding_is_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "a b@c|d on\x1b]8.py"
    script.touch()
    here = replace(KEPT, file=str(script), line=48)
    elsewhere = replace(KEPT, file=str(tmp_path / "none.py"), line=48, key="elsewhere")
    relative = replace(KEPT, key="relative")  # the directory of the run is not known
    address = f"file://{quote(socket.gethostname())}{quote(str(script))}#48"
    for name in ("TMUX", "STY", "TEXTUAL_DRIVER"):
        monkeypatch.delenv(name, raising=False)
    for term, in_page, known, expected in [
        ("xterm-kitty", False, here, {address}),
        ("xterm-kitty", False, elsewhere, set()),
        ("xterm-kitty", False, relative, set()),
        ("xterm-kitty", True, here, set()),
        ("dumb", False, here, set()),
    ]:
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("TEXTUAL_DRIVER", "page" if in_page else "")
        async with session() as run:
            await show(run, known)
            run.app.push_screen(FindingDialog(run.app.run_state, known))
            await run.pump()
            # A line break may be within it.
            assert ":48" in "".join(shown(run).split())
            assert links(run) == expected


async def test_hostile_paths_reach_no_line() -> None:
    async with session() as run:
        evil = "a\x1b]0;b\x07\u202e[bold]"
        await show(
            run, replace(IN_NONE, message=evil, paths=(evil,), file=evil, line=1, command=evil, evidence={evil: 1})
        )
        assert all(line.isprintable() for line in run.dashboard.finding.text.splitlines())
        await run.press("d")
        assert all(line.isprintable() for line in shown(run).splitlines())
        await run.press("enter")
        assert all(line.isprintable() for line in shown(run).splitlines())
        assert "[bold]" in shown(run)


def with_findings(theme: str, *keys: str) -> tuple[GradtuiApp, Callable[[Pilot[str]], object]]:
    events: list[ev.Event] = coop_run(120)
    app = GradtuiApp(ScriptedSource(events), RecordingSink(), refresh_hz=0)
    app.theme = theme

    async def before(pilot: Pilot[str]) -> None:
        await pilot.pause()
        app.pump()
        app.run_state.findings = ALL
        app.pump()
        await pilot.pause()
        await pilot.press(*keys)
        app.pump()
        await pilot.pause()

    return app, before


def test_the_line_and_the_marks(snap_compare: Callable[..., bool]) -> None:
    app, before = with_findings(DARK_THEME.name)
    assert snap_compare(app, terminal_size=(80, 24), run_before=before)


def test_the_list(snap_compare: Callable[..., bool]) -> None:
    app, before = with_findings(LIGHT_THEME.name, "d", "down")
    assert snap_compare(app, terminal_size=(100, 30), run_before=before)
