"""The dialog before an optimizer's step with NaN or Inf."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from helpers.app_session import Session, session
from helpers.lines import line_text
from helpers.states import state_after
from textual.widgets import Input, OptionList, Static

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command, Resume, SetGroup, SkipStep
from gradtui.protocol.script_lines import ScriptLine
from gradtui.protocol.vocabulary import GroupSettings, HeldStep, OptimizerInfo, Phase
from gradtui.run.state.run_state import RunState
from gradtui.tui.panels.header import HeaderState, header_line
from gradtui.tui.requests.held_step import choices, facts
from gradtui.tui.screens import held_step as screen
from gradtui.tui.screens.breakpoints import BreakpointDialog
from gradtui.tui.screens.held_step import HeldStepDialog

CAUSE = "first NaN: backward of step 41: loss finite, gradient of ctx NaN"
HELD = HeldStep(0, "SGD")
PAUSED = ev.PauseChanged(2.0, 40, True, CAUSE, held_step=HELD)
GROUPS = ev.GroupsRead(1.0, 1, ((GroupSettings(0.1, 0.0), GroupSettings(0.01, 0.0)),))
OPTIMIZERS = ev.OptimizersFound(1.0, 0, (OptimizerInfo("SGD", 2, (0, 1), 0, (0, 1)),))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "SETTLE_S", 0.0)


def commands_of(state: RunState, key: str, held: HeldStep = HELD) -> list[Command]:
    (choice,) = [each for each in choices(state, held) if each.key == key]
    return [make(number) for number, make in enumerate(choice.commands, 1)]


def test_the_commands_of_each_choice() -> None:
    state = state_after(OPTIMIZERS, GROUPS, PAUSED)
    assert commands_of(state, "s") == [SkipStep(1), Resume(2)]
    assert commands_of(state, "c") == [Resume(1)]
    assert commands_of(state, "l") == [
        SetGroup(1, 0, 0, learning_rate=0.01), SetGroup(2, 0, 1, learning_rate=0.001), SkipStep(3), Resume(4),
    ]  # fmt: skip
    texts = [choice.text for choice in choices(state, HELD)]
    assert texts[1].endswith("0.1 → 0.01, 0.01 → 0.001")


def test_rates_that_are_not_known_cannot_be_lowered() -> None:
    assert [choice.key for choice in choices(state_after(PAUSED), HELD)] == ["s", "c"]


def test_a_step_that_cannot_be_skipped_says_why() -> None:
    held = HeldStep(0, "Lion", "Lion is no optimizer of torch.optim")
    state = state_after(OPTIMIZERS, GROUPS, PAUSED)
    assert [choice.key for choice in choices(state, held)] == ["c"]
    assert facts(state, held)[-1].startswith("It cannot be skipped")
    assert facts(state, held)[0].startswith("First NaN: backward of step 41")


def test_line_of_script_is_named_for_skip() -> None:
    line = ScriptLine("train.py", 12, "opt.step()", "main")
    found = ev.NonFiniteFound(2.0, 41, 1, "Inf", Phase.BACKWARD, 40)
    state = state_after(OPTIMIZERS, GROUPS, found, PAUSED)
    assert facts(state, HeldStep(0, "SGD", line=line))[1].startswith("At train.py:12 ")
    assert choices(state, HELD)[0].text.endswith("; Inf may come again")


@pytest.mark.parametrize(("number", "step"), [(1, 41), (2, 57)])
def test_the_header_names_the_step_of_the_dialog(number: int, step: int) -> None:
    events = [
        ev.NonFiniteFound(2.0, 41, 1, "NaN", Phase.FORWARD, 40),
        ev.NonFiniteFound(2.0, 57, 2, "Inf", Phase.BACKWARD, 56),
    ]
    state = state_after(*events[:number], PAUSED)
    state.step = step - 1
    state.gradient_norm.append(step, math.inf)
    header = line_text(header_line(state, HeaderState(), 120))
    assert f"{events[number - 1].value} at {step}" in header
    assert f"step {step} " in header


def dialog(run: Session) -> HeldStepDialog:
    assert isinstance(run.app.screen, HeldStepDialog)
    return run.app.screen


async def test_line_of_script_is_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    for name in ("TMUX", "STY", "TEXTUAL_DRIVER"):
        monkeypatch.delenv(name, raising=False)
    held = HeldStep(0, "SGD", line=ScriptLine("train.py", 12, "opt.step()", "main", str(tmp_path)))
    for term, is_link in (("xterm-kitty", True), ("dumb", False)):
        monkeypatch.setenv("TERM", term)
        async with session() as run:
            run.app.push_screen(HeldStepDialog(run.app.run_state, held))
            await run.pump()
            notes = dialog(run).query_one("#form-notes", Static)
            strips = [notes.render_line(y) for y in range(notes.content_size.height)]
            links = {each.text for strip in strips for each in strip if each.style is not None and each.style.link}
            assert links == ({"train.py:12"} if is_link else set())


async def test_it_opens_by_itself_with_the_cause_first() -> None:
    async with session() as run:
        await run.put(PAUSED)
        text = str(dialog(run).query_one("#form-notes", Static).render())
        assert text.startswith("First NaN: backward of step 41")
        await run.press("s")
        assert run.sink.submitted == [SkipStep(1), Resume(2)]
        assert not isinstance(run.app.screen, HeldStepDialog)


async def test_a_choice_that_wraps_stays_beside_its_key() -> None:
    async with session() as run:
        await run.put(OPTIMIZERS, GROUPS, ev.NonFiniteFound(2.0, 41, 1, "Inf", Phase.BACKWARD, 40), PAUSED)
        (first,) = [index for index, line in enumerate(run.lines) if "  s  Skip this step" in line]
        assert run.lines[first + 1].index("Inf may come again") == run.lines[first].index("Skip this step")


async def test_enter_stays_paused_and_b_opens_it_again() -> None:
    async with session() as run:
        await run.put(PAUSED)
        options = dialog(run).query_one(OptionList)
        assert options.highlighted == options.option_count - 1
        await run.press("enter")
        assert not isinstance(run.app.screen, HeldStepDialog)
        assert run.sink.submitted == []
        await run.press("b", "c")
        assert run.sink.submitted == [Resume(1)]


async def test_key_for_screen_below_chooses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "SETTLE_S", 1e9)
    async with session() as run:
        await run.put(PAUSED)
        await run.press("s", "c")
        assert isinstance(run.app.screen, HeldStepDialog)
        assert run.sink.submitted == []


async def test_it_does_not_open_while_user_is_typing() -> None:
    async with session() as run:
        await run.press("slash")
        assert isinstance(run.app.focused, Input)
        await run.put(PAUSED)
        assert not isinstance(run.app.screen, HeldStepDialog)
        await run.press("escape", "b")
        assert isinstance(run.app.screen, HeldStepDialog)


@pytest.mark.parametrize("event", [ev.PauseChanged(3.0, 40, False), ev.RunEnded(3.0, 40, 1, None)])
async def test_it_closes_when_run_goes_on_or_ends(event: ev.Event) -> None:
    async with session() as run:
        await run.put(PAUSED)
        await run.put(event)
        assert not isinstance(run.app.screen, HeldStepDialog)


async def test_a_pause_at_a_boundary_opens_nothing() -> None:
    async with session() as run:
        await run.put(ev.PauseChanged(2.0, 40, True, "loss 4 > 3 at step 40"))
        assert run.app.screen is run.dashboard
        await run.press("b")
        assert isinstance(run.app.screen, BreakpointDialog)
