"""The dialog at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pyte
import pytest
from helpers.app_session import session
from helpers.events import of_rank, progress
from helpers.fakes import coop_run
from helpers.jobs import model, ranks_join
from helpers.states import state_after
from textual._compositor import CompositorUpdate
from textual.content import Content
from textual.screen import Screen

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.script_lines import ScriptLine, Uncaught
from gradtui.run.state.run_state import RunState
from gradtui.tui.app.app import GradtuiApp
from gradtui.tui.rendering.lines import place_in
from gradtui.tui.screens.end import EndDialog, end_lines
from gradtui.tui.screens.form import FormDialog
from gradtui.tui.screens.plots import PlotScreen

ENDED = ev.RunEnded(9.0, 40, 0, None)
FAILED = ev.RunEnded(9.0, 40, 1, "Traceback (most recent call last):\n  File x\nValueError: boom\n")


def text(dialog: EndDialog) -> str:
    return dialog.query_one("#dialog-lines").text  # type: ignore[attr-defined,no-any-return]


async def test_it_opens_once() -> None:
    async with session(shows_end=True) as run:
        await run.put(ENDED)
        dialog = run.app.screen
        assert isinstance(dialog, EndDialog)
        for words in ("40 steps, 40 micro-steps in 9.0 s", "CoOp: ", "peak"):
            assert words in " ".join(text(dialog).split())
        assert "changed" not in text(dialog)
        await run.press("escape")
        await run.pump()
        assert run.app.screen is run.dashboard


def test_line_that_raised_is_a_link() -> None:
    """Its path is shown from the directory of the run, which the viewer need not be in."""
    line = ScriptLine("my.py", 7, "step(1)", "main", "/a b")
    ended = ev.RunEnded(
        9.0, 5, 1, "Traceback\nValueError: x", None, Uncaught("ValueError", ("see other.py:3",), line=line)
    )
    spans = [span for line in end_lines(state_after(*coop_run(5), ended), 80) for span in line]
    assert [(text, place_in(role)[0]) for text, role in spans if place_in(role)[0]] == [("my.py:7", "/a%20b/my.py#7")]


async def test_panels_below_it_say_that_run_has_ended() -> None:
    async with session((120, 36)) as run:
        assert "Nothing has been changed yet" in run.dashboard.changes.text
        run.source.put(ev.RunEnded(9.0, 40, 0, None))
        run.app._drain()
        assert run.dashboard.changes.text.startswith("Nothing was changed")


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 50)])
async def test_it_says_error_and_leaves_traceback_in_sight(size: tuple[int, int]) -> None:
    async with session(size, shows_end=True) as run:
        await run.put(FAILED)
        dialog = run.app.screen
        assert isinstance(dialog, EndDialog)
        assert text(dialog).splitlines()[0].split()[:2] == ["error", "ValueError:"]
        box, output = dialog.query_one("#dialog").region, run.dashboard.output.region
        assert run.dashboard.output.display
        assert box.height > 5
        assert not box.overlaps(output)


@pytest.mark.parametrize(
    ("ended", "title", "word"),
    [
        (ENDED, "The run has ended", "ended"),
        (FAILED, "The script failed", "failed"),
        (ev.RunEnded(9.0, 40, 3, None), "The run has ended", "ended"),
        (
            ev.RunEnded(9.0, 40, 130, "Traceback (most recent call last):\n  File x\nKeyboardInterrupt\n"),
            "The run was interrupted",
            "stopped",
        ),
    ],
    ids=["to its end", "an error", "an exit code", "Ctrl+C"],
)
async def test_its_title_agrees_with_the_header(ended: ev.RunEnded, title: str, word: str) -> None:
    async with session(shows_end=True) as run:
        await run.put(ended)
        shown = run.app.screen.query_one("#dialog").border_title
        assert Content.from_markup(str(shown)).plain == title
        assert word in run.dashboard.header.text


async def test_q_leaves() -> None:
    async with session(shows_end=True) as run:
        await run.put(ENDED)
        await run.press("q")
        assert run.app.return_value == "ended"


async def test_other_key_closes_and_acts() -> None:
    async with session(shows_end=True) as run:
        await run.put(ENDED)
        await run.press("v")
        await run.pilot.pause()
        assert run.app.screen is run.dashboard
        assert run.dashboard.shows_newest_events


async def test_it_writes_the_schedule() -> None:
    saved: list[RunState] = []

    def save(state: RunState) -> str:
        saved.append(state)
        return "written to x"

    async with session(shows_end=True, save_schedule=save) as run:
        await run.put(ev.CommandApplied(2.0, 30, SetTrainable(1, "ctx", False), "froze ctx", (0,)), ENDED)
        dialog = run.app.screen
        assert isinstance(dialog, EndDialog)
        assert "at step 30: froze ctx" in " ".join(text(dialog).split())
        await run.press("e")
        assert saved == [run.app.run_state]
        assert run.said[-1].text == "written to x"
        assert run.app.screen is dialog


async def test_it_waits_for_dialog_over_plots() -> None:
    async with session(shows_end=True) as run:
        await run.press("N")
        await run.put(ENDED)
        assert isinstance(run.app.screen, FormDialog)
        await run.press("escape", "g")
        assert isinstance(run.app.screen, PlotScreen)
        await run.pump()
        assert isinstance(run.app.screen, EndDialog)


def job_of_two() -> Iterator[ev.Event]:
    yield from ranks_join(2, model())
    for rank in range(2):
        yield of_rank(rank, progress(40, 40, at=2.0))


async def test_end_of_shown_rank_is_local() -> None:
    async with session(shows_end=True, events=job_of_two()) as run:
        await run.put(of_rank(0, ev.RunEnded(9.0, 43, 0, None)))
        assert run.app.screen is run.dashboard
        assert "The run has ended" not in run.dashboard.why.text
        assert "step 43" in run.dashboard.header.text, "there may be no other event of its last steps"
        await run.put(of_rank(1, ev.RunEnded(9.1, 43, 0, None)))
        assert run.app.screen is run.dashboard, "the launcher still runs"
        await run.put(ev.RunEnded(9.2, 0, 0, None))
        assert isinstance(run.app.screen, EndDialog)
        assert title_of(run.app.screen) == "The run has ended"
        assert "step 43" in run.dashboard.header.text


async def test_process_that_ends_before_its_ranks_says_so() -> None:
    async with session(shows_end=True, events=job_of_two()) as run:
        await run.put(of_rank(0, ev.RunEnded(9.0, 43, 0, None)), ev.RunEnded(9.1, 0, 0, None))
        assert "1 rank still trains" in title_of(run.app.screen)
        assert "1 rank still trains." in " ".join(run.dashboard.why.paragraph.split())
        await run.put(of_rank(1, ev.RunEnded(9.2, 43, 0, None)))
        assert title_of(run.app.screen) == "The run has ended"


async def test_later_events_are_drawn_behind_dialog() -> None:
    """What the terminal shows of the header, not only what the widget has: the dialog dims it."""
    size = 120, 36
    async with session(size, shows_end=True) as run:
        await run.put(ENDED)
        dialog = run.app.screen
        assert isinstance(dialog, EndDialog)
        assert "(step 40)" in text(dialog)
        screen = shown_screen(run.app, size)
        late = ev.GradientsMeasured(9.1, 41, 0.123, 0.456, None)
        await run.put(ev.Progress(9.1, 41, 1, 1, 0, (1,), (), 0.0, 1, 1), late)
        await run.pilot.pause()
        assert "step 41 " in screen.display[0]
        assert "loss 0.456 " in screen.display[0]
        assert "0.456 (step 41)" in text(dialog)
        assert any("0.456 (step 41)" in line for line in screen.display)


def shown_screen(app: GradtuiApp, size: tuple[int, int]) -> pyte.Screen:
    """What the app draws from now on, as a terminal shows it. A headless app draws nothing by itself."""
    screen = pyte.Screen(*size)
    stream = pyte.Stream(screen)

    def display(_screen: object, update: object) -> None:
        if isinstance(update, CompositorUpdate):
            stream.feed(update.render_segments(app.console))

    app._display = display  # type: ignore[method-assign,assignment]
    return screen


def title_of(dialog: Screen[object]) -> str:
    return Content.from_markup(str(dialog.query_one("#dialog").border_title)).plain
