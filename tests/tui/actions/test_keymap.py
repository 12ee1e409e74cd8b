"""Which remapped keys are right, and that the screen goes by them."""

from __future__ import annotations

import pytest
from helpers.app_session import session
from helpers.fakes import finding
from helpers.lines import line_text

from gradtui.configuration.settings import RemappedKeys
from gradtui.protocol import commands
from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import HeldStep
from gradtui.run.state.selectors import RunStatus
from gradtui.tui.actions import ACTIONS, Keymap, keymap
from gradtui.tui.screens.help import found_lines, here, overview_lines


def entries(**keys: str) -> list[RemappedKeys]:
    return [RemappedKeys(action, text, "file") for action, text in keys.items()]


def test_keys_have_textual_s_names() -> None:
    found = keymap(entries(pause="ctrl+space", help="f3,?", run_to="R", undo=" f2 "))
    assert found == Keymap(
        {"pause": ("ctrl+space",), "help": ("f3", "question_mark"), "run_to": ("R",), "undo": ("f2",)}
    )
    # NUL, which terminals send for ctrl+space, is ctrl+@ in Textual.
    assert found.bound == {"pause": "ctrl+space,ctrl+@", "help": "f3,question_mark", "run_to": "R", "undo": "f2"}


def test_actions_have_the_keys_in_force() -> None:
    before = {action.id: action for action in ACTIONS}
    after = {action.id: action for action in keymap(entries(pause="ctrl+space", row_down="ctrl+n")).apply(ACTIONS)}
    assert {id for id in before if before[id] != after[id]} == {"pause", "row_down"}
    assert after["pause"].key_text == "ctrl+space"
    assert (before["row_down"].key_text, after["row_down"].key_text) == ("↑↓", "ctrl+n")
    assert after["pause"].title == before["pause"].title


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"paus": "x"}, "keys.paus: there is no such action (the nearest is pause); gradtui config --keys lists all"),
        ({"xyz": "x"}, "keys.xyz: there is no such action; gradtui config --keys lists all"),
        ({"pause": "ctrl+spce"}, "keys.pause: 'ctrl+spce' is no key; write a key such as x, f2, slash or ctrl+space"),
        ({"pause": "strg+x"}, "keys.pause: 'strg+x' is no key; "),
        ({"pause": "x,,y"}, "keys.pause: 'x,,y' is no key; "),
        ({"pause": "n"}, "keys.pause: n is the key of run_one_step; give run_one_step another key too"),
        # The app's, the dashboard's and the tree's keys are at work at once.
        ({"pause": "?"}, "keys.pause: question_mark is the key of help; "),
        ({"pause": "z"}, "keys.pause: z is the key of toggle_fold; "),
        ({"toggle_fold": "p"}, "keys.toggle_fold: p is the key of pause; "),
        # An action of the dashboard that the plots screen has too.
        ({"pause": "w"}, "keys.pause: w is the key of smooth; "),
        ({"smooth": "p"}, "keys.smooth: p is the key of pause; "),
        ({"leave": "0"}, "keys.leave: 0 is the key of zoom_none; "),
        ({"pause": "x", "undo": "y,x"}, "keys.undo: x is the key of pause; "),
    ],
)
def test_wrong_entries_are_ignored(keys: dict[str, str], problem: str) -> None:
    found = keymap(entries(**keys, next_panel="f9"))
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"file: {problem}")
    wrong = problem.split(":")[0].removeprefix("keys.")
    assert set(found.keys) == {*keys, "next_panel"} - {wrong}


@pytest.mark.parametrize(
    "keys",
    [
        {"pause": "n", "run_one_step": "p"},
        {"filter": "w"},  # not on the plots screen
        {"smooth": "u"},  # not on the dashboard
        {"close": "q"},  # as without a keymap
        {"pause": "p"},
    ],
)
def test_no_clash(keys: dict[str, str]) -> None:
    assert keymap(entries(**keys)) == Keymap({id: (key,) for id, key in keys.items()})


def test_fallback_to_taken_key_clashes_too() -> None:
    found = keymap(entries(pause="n", run_one_step="p", undo="n"))
    # `undo` loses; the exchange of the other two stays.
    assert found.keys == {"pause": ("n",), "run_one_step": ("p",)}
    found = keymap(entries(undo="p", pause="n"))
    # `pause` keeps p, which `undo` wanted.
    assert found.keys == {}
    assert len(found.problems) == 2


def test_the_help_shows_the_keys_in_force() -> None:
    found = keymap(entries(pause="ctrl+space", run_to="R"))
    lines = found_lines(found.apply(ACTIONS), "", 100)
    text = "\n".join(line_text(line) for line in lines)
    assert " ctrl+space Pause or resume: " in text
    assert " R          Run to a step: " in text
    lines = overview_lines(here("tree", RunStatus.RUNNING, found), 100)
    text = "\n".join(line_text(line) for line in lines)
    assert " ctrl+space Pause or resume" in text


async def test_a_remapped_key_acts_and_is_shown() -> None:
    async with session(keys=entries(pause="ctrl+space", run_one_step="p", fold_all="f7", run_to="R")) as run:
        bar = run.dashboard.keys.text
        assert "ctrl+space pause" in bar
        assert " p step" in bar
        await run.press("n", "minus")
        assert run.sink.submitted == []
        await run.press("p")
        assert [type(each) for each in run.sink.submitted] == [commands.RunSteps]
        await run.press("ctrl+@")
        assert len(run.sink.submitted) == 2
        rows = len(run.dashboard.tree_view.rows)
        await run.press("f7")
        assert len(run.dashboard.tree_view.rows) < rows
        titles = await run.palette()
        assert {"Pause or resume  ctrl+space", "Run to a step  R", "Fold all  f7"} <= set(titles)
        await run.press("R")
        assert run.app.screen is not run.dashboard


async def test_texts_of_screen_name_keys_in_force() -> None:
    remapped = entries(
        sort="f2",
        next_problem="f3",
        next_parameter="f4",
        findings="f5",
        breakpoints="f6",
        command_palette="f7",
        back="f8",
    )
    async with session(keys=remapped) as run:
        await run.press("f2", "f2", "f2")
        assert " · f2: next" in str(run.dashboard.pane.border_subtitle)
        await run.press("f2", "f2", "slash", *"xyz", "enter")
        assert "f8 shows every row again." in run.dashboard.tree_view.text
        run.app.run_state.findings = [finding("GT203")]
        await run.pump()
        assert "f3 go to it  f5 list" in run.dashboard.finding.text
        await run.put(ev.PauseChanged(2.0, 40, True, "NaN", held_step=HeldStep(0, "SGD")))
        assert "; f6 opens this again" in "".join(run.lines)
        shown = found_lines(run.app.keymap.apply(ACTIONS), "clear gradients", 100)
        assert any(text.strip() == "f7" for line in shown for text, _ in line)


async def test_wrong_entries_are_shown_in_one_line_each() -> None:
    async with session(keys=entries(pause="n", undo="f4")) as run:
        assert [notice.text for notice in run.said] == [
            "file: keys.pause: n is the key of run_one_step; give run_one_step another key too"
        ]
        await run.press("n")
        assert [type(each) for each in run.sink.submitted] == [commands.RunSteps]
