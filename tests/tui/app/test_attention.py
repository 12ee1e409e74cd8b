"""Who is called when: what deserves attention, the focus of the terminal, and the last key."""

from __future__ import annotations

import pytest
from helpers.app_session import Session, session
from helpers.fakes import coop_run, started
from helpers.states import state_after
from textual import events

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.run_state import RunState
from gradtui.run.text import Notice, notice_facts, notice_of, notice_text
from gradtui.tui.app import attention
from gradtui.tui.app.attention import IDLE_S, Attention
from gradtui.tui.terminal import bell
from gradtui.tui.terminal.bell import notification

NAN = ev.NonFiniteFound(1.0, 7, 1, "NaN", Phase.FORWARD, 6)
ENDINGS = {
    "ended": ev.RunEnded(9.0, 8, 0, None),
    "failed": ev.RunEnded(9.0, 8, 1, "Traceback\n  File 'x'\nValueError: bad\x1b[2J batch\n"),
    "exit code": ev.RunEnded(9.0, 8, 3, None),
    "nan": NAN,
    "held": ev.PauseChanged(1.0, 7, True, "loss is above 3"),
    "gave up": ev.ReturnsEnded(1.0, 7, "nan", 3, "no state from before it is kept"),
}
SAID = {
    "ended": Notice("ended", 8, "the run has ended"),
    "failed": Notice("failed", 8, "ValueError: bad·[2J batch"),
    "exit code": Notice("failed", 8, "exit code 3"),
    "held": Notice("held", 7, "loss is above 3"),
    "gave up": Notice(
        "gave_up",
        7,
        "--return-at-nan gives up: no state from before it is kept; the run continues without returns",
    ),
}


def after(event: ev.Event) -> tuple[RunState, Notice | None]:
    state = state_after(started(), ev.Progress(1.0, 8, 0, 0, 0, (), (), 0.0, 1, 1), event)
    return state, notice_of(state, event)


@pytest.mark.parametrize("name", SAID)
def test_a_notice_says_what_happened(name: str) -> None:
    assert after(ENDINGS[name])[1] == SAID[name]


def test_acts_and_nan_consequences_are_no_news() -> None:
    assert after(NAN)[1] is not None
    quiet = (
        ev.PauseChanged(1.0, 7, True),
        ev.PauseChanged(1.0, 7, False),
        ev.NonFiniteFound(1.0, 9, 2, "NaN", Phase.FORWARD, 6),
        started(),
    )
    assert [after(event)[1] for event in quiet] == [None] * 4


def test_the_facts_are_variables() -> None:
    state, notice = after(ENDINGS["failed"])
    assert notice is not None
    facts = notice_facts(state, notice, "train\n.py")
    assert facts["GRADTUI_EVENT"] == "failed"
    assert facts["GRADTUI_EXIT_CODE"] == "1"
    assert facts["GRADTUI_LOSS"] == ""
    assert facts["GRADTUI_SCRIPT"] == "train·.py"
    assert facts["GRADTUI_STEP"] == "8"
    assert notice_text(notice, "train.py") == "train.py, step 8: ValueError: bad·[2J batch"


@pytest.mark.parametrize(
    ("focus", "idle", "rings", "runs"),
    [
        (None, 0.0, False, False),
        (None, IDLE_S + 1, True, True),
        (True, 0.0, False, False),
        (True, IDLE_S + 1, False, True),  # a terminal keeps the focus when its user leaves the room
        (False, 0.0, True, True),
        (False, IDLE_S + 1, True, True),
    ],
)
async def test_only_user_who_does_not_look_is_called(
    focus: bool | None, idle: float, rings: bool, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung, run = called(monkeypatch)
    async with session(events=coop_run()) as screen:
        attend(screen, run)
        if focus is not None:
            await screen.app.on_event(events.AppFocus() if focus else events.AppBlur())
        await screen.press("down")
        now = attention.monotonic()
        monkeypatch.setattr(attention, "monotonic", lambda: now + idle)
        await screen.put(NAN)
    assert [bool(rung), bool(run)] == [rings, runs]


async def test_both_can_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    rung, _ = called(monkeypatch)
    async with session(events=coop_run()) as screen:
        await screen.app.on_event(events.AppBlur())
        await screen.put(NAN)
    assert rung == []


def called(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[Notice]]:
    rung: list[str] = []
    monkeypatch.setattr(attention, "ring", lambda _app, text: rung.append(text))
    return rung, []


def attend(screen: Session, run: list[Notice]) -> None:
    app = screen.app
    app._attention = Attention(app, app.run_state, lambda _state, notice: run.append(notice), rings=True)


@pytest.mark.parametrize(
    ("environ", "sequence"),
    [
        ({"TERM": "xterm-256color"}, "\x1b]9;gradtui: a, bc\a"),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7000"}, "\x1b]777;notify;gradtui;a, bc\a"),
        ({"TERM": "foot"}, "\x1b]777;notify;gradtui;a, bc\a"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x"}, "\x1bPtmux;\x1b\x1b]9;gradtui: a, bc\a\x1b\\"),
        ({"TERM": "linux"}, ""),
        ({"TERM": "screen.xterm-256color"}, ""),
        ({}, ""),
    ],
)
def test_the_sequence_is_that_of_the_terminal(environ: dict[str, str], sequence: str) -> None:
    assert notification("a; b\x1b\x07\nc", environ) == sequence


def test_bell_goes_to_terminal_by_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Driver:
        current: object = None

        def write(self, text: str) -> None:
            written.append(text)

    class App:
        driver_class = Driver

    monkeypatch.setattr(bell, "ThreadDriver", Driver)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.delenv("VTE_VERSION", raising=False)
    bell.ring(App(), "over")  # type: ignore[arg-type]
    assert written == []
    Driver.current = Driver()
    bell.ring(App(), "over")  # type: ignore[arg-type]
    assert written == ["\a\x1b]9;gradtui: over\a"]
