"""Names are hostile input: nothing of them reaches the terminal as a command, on stderr or on the screen."""

from __future__ import annotations

import os
import unicodedata
from dataclasses import replace

import pytest
from helpers.app_session import session
from helpers.examples import examples
from helpers.fakes import coop_run
from helpers.states import state_after
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from gradtui.protocol import events as ev
from gradtui.run.text import closing_lines, end_rows
from gradtui.runner.plain import PlainReporter
from gradtui.system.printable import printable, without_controls, write_line
from gradtui.transport.in_process import EventQueue
from gradtui.tui.terminal import NoControls

HOSTILE = "\x1b]0;owned\x07\x1b[2J[bold red]\u202e\x9b31m\r\n"

texts = st.text(
    st.sampled_from("a é漢[/]\x1b\x07\x9b\r\n\t\x00\u202e\u2066\u200f\u2028\udc1b\U0001f600") | st.characters()
)


def reach_the_terminal(text: str) -> list[str]:
    """Characters that act instead of being shown: of category Cc (controls), or those that reverse text."""
    reversing = {"R", "L", "AL"}
    return [
        sign
        for sign in text
        if unicodedata.category(sign) == "Cc"
        or sign in "\u2028\u2029"
        or (unicodedata.category(sign) == "Cf" and unicodedata.bidirectional(sign) in reversing)
        or unicodedata.bidirectional(sign) in {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    ]


@given(texts)
def test_no_control_character_is_left(text: str) -> None:
    assert reach_the_terminal(printable(text)) == []
    assert reach_the_terminal(without_controls(text)) == []
    assert len(printable(text)) == len(text)


def test_python_calls_none_of_them_printable() -> None:
    """The quick way out of `printable` and of the screen's filter rests on it."""
    basic = "".join(map(chr, range(0x10000)))
    assert not [sign for sign in reach_the_terminal(basic) if sign.isprintable()]


@given(texts)
def test_control_characters_are_gone_keeping_width(text: str) -> None:
    (drawn,) = NoControls().apply([Segment(text)], Color(0, 0, 0))
    assert reach_the_terminal(drawn.text) == []
    assert cell_len(drawn.text) == cell_len(text)


@given(st.text())
def test_harmless_text_stays_as_it_is(text: str) -> None:
    if not reach_the_terminal(text):
        assert printable(text) == without_controls(text) == text


def test_a_line_on_stderr_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_line(f"a name: {HOSTILE}")
    written = capsys.readouterr().err
    assert written.endswith("\n")
    assert reach_the_terminal(written[:-1]) == []


@settings(max_examples=examples(10))
@given(texts)
def test_the_reporter_writes_lines_without_them(text: str) -> None:
    reading, writing = os.pipe()
    reporter = PlainReporter(EventQueue())
    assert reporter._descriptor is not None
    os.close(reporter._descriptor)
    reporter._descriptor = writing
    reporter.say(text)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        written = pipe.read().decode()
    assert written.startswith("gradtui: ")
    assert reach_the_terminal(written[:-1]) == []


def hostile(event: ev.Event) -> ev.Event:
    """The event with a hostile name in place of each name of a script's."""
    if isinstance(event, ev.RunStarted):
        return replace(event, script=f"train{HOSTILE}.py")
    if isinstance(event, ev.ModelsFound):
        return replace(
            event,
            models=tuple(replace(each, name=HOSTILE, type_name=HOSTILE) for each in event.models),
            modules=tuple(replace(each, path=each.path + HOSTILE, type_name=HOSTILE) for each in event.modules),
            parameters=tuple(replace(each, path=each.path + HOSTILE) for each in event.parameters),
        )
    if isinstance(event, ev.CommandApplied):
        return replace(event, text=HOSTILE)
    return event


RUN = [hostile(event) for event in coop_run(40)]


def test_the_closing_lines_reach_stderr_without_them(capfd: pytest.CaptureFixture[str]) -> None:
    state = state_after(*RUN)
    reporter = PlainReporter(EventQueue())
    for line in closing_lines(end_rows(state)):
        reporter.say(line)
    written = capfd.readouterr().err.splitlines()
    assert any("[bold red]" in line for line in written)
    assert [sign for line in written for sign in reach_the_terminal(line)] == []


@pytest.mark.parametrize("keys", [(), ("enter",), ("f",), ("q",)], ids=lambda keys: "".join(keys))
async def test_the_screen_has_none(keys: tuple[str, ...]) -> None:
    async with session(events=RUN) as run:
        await run.press(*keys)
        run.app.notify(f"notice: {HOSTILE[:-2]}", title=HOSTILE)
        await run.pilot.pause()
        strips = run.app.screen._compositor.render_strips()
        drawn = [segment.text for strip in strips for segment in strip]
        shown = ["".join(segment.text for segment in strip) for strip in strips]
        assert any("notice: " in line and "[bold red]" in line for line in shown)
        assert [sign for text in drawn for sign in reach_the_terminal(text)] == []
