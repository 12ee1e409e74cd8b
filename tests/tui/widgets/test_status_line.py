"""The line of messages: what is shown, for how long, above the keys and over dialogs."""

from __future__ import annotations

import pytest
from helpers.app_session import Session, session
from helpers.lines import line_text

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetMode, ZeroGradients
from gradtui.tui.rendering import line_width
from gradtui.tui.screens.dialog import Dialog
from gradtui.tui.widgets import Status, StatusMessage, StatusMessages, message_line

REFUSED = StatusMessage("there are none", "Refused", "warning")
FAILED = StatusMessage("ctx moved while frozen", severity="error")
TOLD = StatusMessage("written to x")


def shown(messages: StatusMessages, now: float) -> tuple[str, int] | None:
    status = messages.status(now, "v")
    return None if status is None else (status.message.text, status.others)


def test_gravest_message_is_shown_and_others_are_counted() -> None:
    messages = StatusMessages()
    assert shown(messages, 0.0) is None
    for message in (TOLD, FAILED, REFUSED):
        messages.add(message, 0.0)
    assert shown(messages, 1.0) == ("ctx moved while frozen", 2)
    messages.add(StatusMessage("blocks.7 moved while frozen", severity="error"), 2.0)
    assert shown(messages, 2.0) == ("blocks.7 moved while frozen", 3)
    messages.clear()
    assert shown(messages, 2.0) is None


def test_information_ends_after_its_time_and_warnings_stay() -> None:
    messages = StatusMessages()
    messages.add(StatusMessage("press again", seconds=10.0), 0.0)
    messages.add(TOLD, 1.0)
    assert shown(messages, 8.9) == ("written to x", 1)
    assert shown(messages, 9.1) == ("press again", 0)
    assert shown(messages, 10.1) is None
    messages.add(REFUSED, 20.0)
    messages.add(TOLD, 20.0)
    assert shown(messages, 1000.0) == ("there are none", 0)


def test_the_same_message_again_counts_once() -> None:
    messages = StatusMessages()
    messages.add(TOLD, 0.0)
    messages.add(TOLD, 7.0)
    assert shown(messages, 14.0) == ("written to x", 0)


@pytest.mark.parametrize(
    ("width", "others", "text"),
    [
        (20, 0, " › a long message"),
        (17, 0, " › a shorter one"),
        (16, 0, " › brief"),
        (30, 3, " › a long message"),
        (26, 3, " › brief"),
    ],
)
def test_shorter_text_replaces_long_message(width: int, others: int, text: str) -> None:
    message = StatusMessage("a long message", shorter=("a shorter one", "brief"))
    line = line_text(message_line(Status(message, others, "v"), width))
    assert line.startswith(text)
    assert len(line) == width
    assert ("more" in line) == (others > 0)


@pytest.mark.parametrize("width", [20, 40, 80, 160])
@pytest.mark.parametrize("others", [0, 3])
def test_a_line_fills_its_width(width: int, others: int) -> None:
    message = StatusMessage("cannot freeze ctx:\nit is the last trainable parameter", "Refused", "warning")
    assert line_width(message_line(Status(message, others, "v"), width)) == width


def text(status: Status, width: int) -> str:
    return line_text(message_line(status, width))


def test_line_names_severity_and_where_rest_is() -> None:
    assert text(Status(REFUSED, 0, "v"), 40).rstrip() == " ! Refused: there are none"
    assert text(Status(FAILED, 2, "v"), 60) == " ✖ ctx moved while frozen".ljust(60 - 11) + "  v 2 more "
    cut = text(Status(StatusMessage("a word " * 20), 0, "V"), 40)
    assert cut.startswith(" › a word a word")
    assert cut.endswith("…  V more ")
    two_lines = StatusMessage("Written to /state:\na.csv\nb.svg")
    assert text(Status(two_lines, 0, "v"), 60).rstrip() == " › Written to /state: a.csv b.svg"


def bottom(run: Session, line: int = -1) -> str:
    strip = run.app.screen._compositor.render_strips()[line]
    return "".join(segment.text for segment in strip)


def above_keys(run: Session) -> str:
    return bottom(run, -2)


REFUSAL = ev.CommandRejected(2.0, 41, ZeroGradients(1), "there are none")


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_message_stands_above_keys_until_next_key(size: tuple[int, int]) -> None:
    async with session(size) as run:
        for keys in ((), ("g", "g")):
            await run.press(*keys)
            before = above_keys(run), bottom(run)
            await run.put(REFUSAL)
            assert "there are none" in above_keys(run)
            assert bottom(run) == before[1]
            await run.press("up")
            assert (above_keys(run), bottom(run)) == before


@pytest.mark.parametrize("key", ["question_mark", "f", "N", "q", "enter"])
async def test_a_message_stands_below_a_dialog(key: str) -> None:
    async with session((80, 24)) as run:
        await run.press(key)
        dialog = run.app.screen
        assert isinstance(dialog, Dialog)
        box = dialog.query("#dialog, #question, #freezing").first().region
        await run.put(REFUSAL)
        await run.pump()
        assert "there are none" in bottom(run)
        assert "there are none" not in above_keys(run)
        assert box == dialog.query("#dialog, #question, #freezing").first().region, "nothing moves"
        await run.press("down")
        assert "there are none" not in bottom(run)


async def test_a_click_on_the_message_removes_it() -> None:
    async with session() as run:
        await run.put(REFUSAL)
        assert "there are none" in above_keys(run)
        await run.pilot.click("Dashboard StatusLine", offset=(3, 0))
        await run.pilot.pause()
        assert "there are none" not in above_keys(run)


async def test_early_refusal_is_event_once() -> None:
    async with session() as run:
        await run.go_to("ctx")
        for _ in range(3):
            await run.press("c")
        assert run.sink.submitted == []
        refused = [entry for entry in run.app.run_state.log if entry.kind == "message"]
        assert len(refused) == 1
        assert refused[0].text.startswith("Refused: ")
        assert "ctx is a parameter" in refused[0].text
        assert "ctx is a parameter" in above_keys(run)
        await run.press("v")
        assert "ctx is a parameter" in " ".join(run.dashboard.events.text.split())


async def test_answer_in_events_is_not_repeated() -> None:
    async with session() as run:
        await run.put(ev.CommandApplied(2.0, 41, SetMode(1, "ctx", False), "put it in eval mode", ()))
        assert "put it in eval mode" in above_keys(run)
        assert [entry.kind for entry in run.app.run_state.log if "eval mode" in entry.text] == ["applied"]


async def test_textual_shows_no_toast() -> None:
    async with session() as run:
        run.app.notify("from Textual itself")
        await run.pump()
        assert "from Textual itself" in above_keys(run)
        assert len(run.app._notifications) == 0
