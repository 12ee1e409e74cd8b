"""The output on the whole screen: more lines than the panel, a search, and the end that is followed."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from helpers.app_session import Session, session
from helpers.fakes import PrintedLog

from gradtui.transport.log_tail import LogTail
from gradtui.tui.screens.output import MAX_LINES, OutputScreen, OutputText, _found_in

SIZES = [(40, 12), (80, 24), (120, 36), (160, 50)]


async def open_output(run: Session) -> None:
    await run.press("o")
    if not isinstance(run.app.screen, OutputScreen):
        await run.press("o")


def output_text(run: Session) -> OutputText:
    screen = run.app.screen
    assert isinstance(screen, OutputScreen)
    return screen.text


async def read_all(run: Session) -> OutputText:
    text = output_text(run)
    while not text.is_caught_up:
        text.read()
    await run.pump()
    return text


async def type_search(run: Session, words: str) -> None:
    await run.press("slash", *("space" if letter == " " else letter for letter in words), "enter")


def frame(run: Session) -> str:
    return str(output_text(run).border_subtitle)


@pytest.mark.parametrize("size", SIZES)
async def test_it_fills_the_screen_and_goes_back(size: tuple[int, int]) -> None:
    async with session(size, log=PrintedLog(*(f"line {number}" for number in range(100)))) as run:
        await open_output(run)
        assert output_text(run).region.height == size[1] - 3
        assert "line 99" in output_text(run).text
        await run.press("q")
        assert run.app.screen is run.dashboard
        await run.press("tab", "o", "o")  # the panel, and then the screen
        assert isinstance(run.app.screen, OutputScreen)
        await run.press("escape")
        assert run.app.screen is run.dashboard


async def test_enter_on_the_panel_opens_it() -> None:
    async with session(log=PrintedLog("line")) as run:
        run.dashboard.output.focus()
        await run.press("enter")
        assert isinstance(run.app.screen, OutputScreen)


async def test_output_exceeds_panel_and_follows_end(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_text("".join(f"\x1b[31mline {number}\x1b[0m\n" for number in range(30_000)))
    async with session(log=LogTail(path)) as run:  # type: ignore[arg-type]  # as the app gets it
        await open_output(run)
        text = await read_all(run)
        assert "of 30,000 · follows the end" in frame(run)
        await run.press("home")
        assert text.text.startswith("line 0")
        assert "follows" not in frame(run)
        with path.open("a") as file:
            file.write("one more\n")
        await run.pump()
        assert text.text.startswith("line 0")
        assert "of 30,001" in frame(run)
        await run.press("end")
        assert "one more" in text.text


async def test_search_goes_around_matching_lines() -> None:
    lines = ["Epoch 1", *["..."] * 60, "epoch 2", *["..."] * 60, "EPOCH 3", "..."]
    async with session(log=PrintedLog(*lines)) as run:
        await open_output(run)
        await type_search(run, "epoch")
        assert "line 3 of 3" in frame(run)  # the last one, because the end is followed
        assert "EPOCH 3" in output_text(run).text
        await run.press("n")
        assert "line 1 of 3" in frame(run)
        assert "Epoch 1" in output_text(run).text
        await run.press("n")
        assert "epoch 2" in output_text(run).text
        await run.press("N", "N")
        assert "EPOCH 3" in output_text(run).text
        await type_search(run, "Epoch")
        assert "line 1 of 1" in frame(run)
        await type_search(run, "nothing like it")
        assert "is nowhere" in frame(run)
        await run.press("escape")
        assert "nowhere" not in frame(run)
        assert isinstance(run.app.screen, OutputScreen)


async def test_long_lines_move_to_match() -> None:
    async with session((80, 24), log=PrintedLog("start " + "漢字 and more " * 40 + "needle", "short")) as run:
        await open_output(run)
        assert "needle" not in output_text(run).text
        await type_search(run, "needle")
        assert "needle" in output_text(run).text
        assert "from column" in frame(run)
        left = output_text(run).left
        await run.press("right")
        assert output_text(run).left > left
        await run.press(*["left"] * 60)
        assert output_text(run).text.startswith("start ")


async def test_hostile_output_is_printable_here_too() -> None:
    async with session(log=PrintedLog("a\x1b[2Jb[bold]c")) as run:
        await open_output(run)
        assert "a·[2Jb[bold]c" in output_text(run).text
        await type_search(run, "[")
        assert "line 1 of 1" in frame(run)


async def test_without_output_it_says_why() -> None:
    async with session(log=PrintedLog()) as run:
        await open_output(run)
        assert "Waiting" in output_text(run).text


def test_a_text_without_capitals_stands_for_capitals_too() -> None:
    assert list(_found_in("Ab aB AB", "ab")) == [0, 3, 6]
    assert list(_found_in("Ab aB AB", "AB")) == [6]
    assert list(_found_in("İb", "b")) == [1]
    assert list(_found_in("text", "")) == []


def test_the_memory_of_many_lines_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_text("".join(f"{number} {'x' * 500}\n" for number in range(60_000)))
    tail = LogTail(path, max_lines=MAX_LINES, max_read=1 << 20, skips=False)
    tracemalloc.start()
    while tail.poll():
        pass
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 24 << 20
    assert tail.lines[-1].startswith("59999 ")
    assert tail.dropped + len(tail.lines) == 60_000
