"""The help: the keys that act now, each meaning in one line, and the search."""

from __future__ import annotations

from typing import get_args

import pytest
from helpers.app_session import Session, session
from helpers.fakes import coop_run
from helpers.lines import texts

from gradtui.configuration.settings import RemappedKeys
from gradtui.protocol import events as ev
from gradtui.run.state.parts.bounds import Bound
from gradtui.run.state.selectors import RunStatus
from gradtui.run.text.units import bounded
from gradtui.tui.actions import ACTIONS, keymap
from gradtui.tui.rendering import line_width
from gradtui.tui.screens.help import HelpDialog, found_lines, here, overview_lines
from gradtui.tui.screens.meanings import MEANINGS
from gradtui.tui.screens.plots import PlotScreen
from gradtui.tui.screens.text_dialog import DialogLines

NONE = keymap(())
PLACES = [None, "tree", "filter", "memory", "output", "events", "plot"]
AT_80 = 73
"""The cells of a line of the help on a screen of 80."""


def overview(width: int = AT_80, place: str | None = "tree", status: RunStatus = RunStatus.RUNNING) -> list[str]:
    return texts(overview_lines(here(place, status, NONE), width))


def shown(run: Session) -> str:
    return run.app.screen.query_one(DialogLines).text


def test_the_keys_that_act_now_come_first() -> None:
    first = overview()[0]
    assert first.startswith("Selected row")
    assert overview(place="memory")[0].startswith("Memory")
    assert " ↑↓        Choose a phase" in overview(place="memory")[1]
    assert overview(place="plot")[0].startswith("Plots")
    assert "Freeze or unfreeze" not in "\n".join(overview(place="plot"))


def test_the_overview_follows_the_state_of_the_run() -> None:
    assert "Pause or resume" in "\n".join(overview())
    paused = "\n".join(overview(status=RunStatus.PAUSED))
    assert " p         Resume" in paused
    assert "Pause or resume" not in paused
    ended = "\n".join(overview(status=RunStatus.ENDED))
    assert all(title not in ended for title in ("Freeze or unfreeze", "Run one step", "Undo", "Breakpoints"))
    assert "Leave" in ended


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_cut_at_eighty_columns(place: str | None) -> None:
    lines = overview(place=place)
    assert not [line for line in lines if "…" in line.replace("choice…", "")]
    assert all(line_width(((line, ""),)) <= AT_80 for line in lines)
    told = "\n".join(lines)
    for section in MEANINGS:
        for each in section.entries:
            assert (each.brief in told) == section.is_overview, each.brief


@pytest.mark.parametrize("width", range(37, 70, 8))
def test_narrow_overview_has_one_column_and_says_same(width: int) -> None:
    lines = overview(width)
    titles = [action.title for action in here("tree", RunStatus.RUNNING, NONE).own if action.in_overview]
    assert [line[11:].strip() for line in lines[1 : len(titles) + 1]] == titles
    assert all(line_width(((line, ""),)) <= width for line in lines)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("width", [30, AT_80, 115])
def test_no_heading_ends_a_column(place: str | None, width: int) -> None:
    lines = overview_lines(here(place, RunStatus.RUNNING, NONE), width)
    end = next(index for index, line in enumerate(texts(lines)) if line.startswith("Type to search"))
    assert lines[end - 1][0][1] != "accent"


def test_search_finds_by_key_title_text_and_meaning() -> None:
    def found(query: str) -> str:
        return "\n".join(texts(found_lines(ACTIONS, query, AT_80)))

    assert " space      Freeze or unfreeze: " in found("space freeze")
    assert " ctrl+p     Clear gradients: " in found("clear gradients")
    assert "Freeze or unfreeze" not in found("snapshot")
    assert "Save allocator snapshot" in found("SNAPSHOT")
    assert "gradient passes" in " ".join(found("passes").split())
    assert found("growth").splitlines() == ["Events", " ! growth      memory rises step after step"]
    assert "'xyzzy'" in found("xyzzy")


def test_every_meaning_is_found_in_full() -> None:
    told = " ".join(" ".join(texts(found_lines(ACTIONS, "", 500))).split())
    for section in MEANINGS:
        for each in section.entries:
            assert " ".join((each.text or each.brief).split()) in told


def test_every_sign_of_a_bound_is_explained() -> None:
    (explained,) = [each.sign[0][0] for section in MEANINGS for each in section.entries if "≥" in each.sign[0][0]]
    assert set(explained) == {bounded(bound, "") for bound in get_args(Bound)} - {""}


async def test_the_help_has_at_most_three_pages() -> None:
    async with session((80, 24)) as run:
        await run.press("question_mark")
        view = run.app.screen.query_one(DialogLines)
        assert view.content_size.width - 1 == AT_80
        assert view.line_count(AT_80) <= 3 * view.content_size.height
        assert "Selected row" in view.text
        for _ in range(3):
            await run.press("pagedown")
        assert "before training" in view.text
        await run.press("home")
        assert "Selected row" in view.text
        await run.press("end", "up", "down")
        assert "before training" in view.text


async def test_typing_searches_and_escape_clears_and_closes() -> None:
    async with session((80, 24)) as run:
        await run.press("question_mark", *"/undo")
        assert "Undo: Undo the latest change" in shown(run)
        assert "Selected row" not in shown(run)
        box = run.app.screen.query_one("#dialog")
        assert "esc clears the search" in str(box.border_subtitle)
        height = box.region
        await run.press(*" qj")
        assert shown(run).startswith("Nothing matches 'undo qj'")
        assert box.region == height
        await run.press("enter")
        await run.press("escape")
        assert "Selected row" in shown(run)
        await run.press("escape")
        assert run.app.screen is run.dashboard
        assert run.sink.submitted == []


@pytest.mark.parametrize("key", ["question_mark", "f1", "enter", "escape"])
async def test_the_help_closes(key: str) -> None:
    async with session() as run:
        await run.press("question_mark")
        assert isinstance(run.app.screen, HelpDialog)
        await run.press(key)
        assert run.app.screen is run.dashboard


async def test_help_is_about_place_where_it_was_opened() -> None:
    async with session() as run:
        await run.press("slash", "f1")
        assert "Keep the filter" in shown(run)
        await run.press("escape", "escape", "m", "question_mark")
        assert "Explain the memory" in shown(run)
        await run.press("escape", "escape", "g", "question_mark")
        assert "Zoom in" in shown(run)
        assert "Fold all" not in shown(run)
        await run.press("escape")
        assert isinstance(run.app.screen, PlotScreen)


async def test_the_help_says_what_the_run_is_doing() -> None:
    async with session() as run:
        await run.put(ev.PauseChanged(2.0, 40, True))
        await run.press("question_mark")
        assert "training is paused" in str(run.app.screen.query_one("#dialog").border_title)
    async with session(events=[*coop_run(5), ev.RunEnded(9.0, 5, 0, None)]) as run:
        await run.press("question_mark")
        assert "the run has ended" in str(run.app.screen.query_one("#dialog").border_title)


async def test_the_help_shows_the_keys_of_the_settings() -> None:
    keys = [RemappedKeys("pause", "ctrl+space", "file"), RemappedKeys("command_palette", "f4", "file")]
    async with session(keys=keys) as run:
        await run.press("question_mark")
        assert "ctrl+space Pause or resume" in shown(run)
        assert "f4 runs" in shown(run)
