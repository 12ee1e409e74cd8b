"""What Rich would draw on a terminal reaches the screen, and its output stays the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live
from rich.progress import Progress
from rich.theme import Theme

from gradtui.transport.live_displays import LiveDisplays
from gradtui.transport.log_tail import LogTail
from gradtui.tui.terminal import rich_displays_in


def work(look: Callable[[], None], console: Console, **options: bool) -> None:
    with Progress(console=console, auto_refresh=False, **options) as progress:  # type: ignore[arg-type]
        for name in ("first", "second"):
            task = progress.add_task(f"[task]{name}", total=2)
            progress.advance(task)
        progress.refresh()
        look()
        progress.console.print("between")


@pytest.fixture
def console() -> Console:
    return Console(
        file=os.fdopen(1, "w", closefd=False),
        width=60,
        theme=Theme({"task": "red"}),
        legacy_windows=False,
        no_color=True,
    )


@pytest.mark.parametrize("transient", [False, True])
def test_a_bar_is_drawn_for_the_screen_alone(
    console: Console,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    transient: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gradtui.tui.terminal.rich_displays._MIN_S", 0.0)
    work(lambda: None, console, transient=transient)
    plain = capfd.readouterr()
    displays = LiveDisplays()
    log = tmp_path / "output.log"
    log.write_text("printed\n")
    tail = LogTail(log, displays=displays)
    seen: list[str] = []
    with rich_displays_in(displays):
        work(lambda: seen.extend(tail.lines if tail.poll() else ()), console, transient=transient)
    assert capfd.readouterr() == plain
    assert seen[0] == "printed"
    assert [line.split()[0] for line in seen[1:]] == ["first", "second"]
    assert all("50%" in line for line in seen[1:])
    assert tail.poll() is True
    assert list(tail.lines) == ["printed"]


def test_foreign_output_is_not_shown(tmp_path: Path) -> None:
    displays = LiveDisplays()
    with rich_displays_in(displays), (tmp_path / "report").open("w") as file:
        work(lambda: None, Console(file=file))
        with Live("text", console=Console(file=file, force_terminal=True)) as live:
            live.refresh()
            assert displays.drawings == ()


def test_the_methods_of_rich_are_its_own_again() -> None:
    before = Live.refresh, Live.stop
    with rich_displays_in(LiveDisplays()):
        assert before != (Live.refresh, Live.stop)
    assert before == (Live.refresh, Live.stop)


def test_a_display_that_cannot_be_drawn_disturbs_nothing(console: Console, capfd: pytest.CaptureFixture[str]) -> None:
    class Broken:
        def __rich_console__(self, *_: object) -> object:
            raise RuntimeError("cannot be drawn")

    displays = LiveDisplays()
    with rich_displays_in(displays), Live(Broken(), console=console, auto_refresh=False, transient=True) as live:
        live.refresh()
    assert displays.drawings == ()
    assert capfd.readouterr().out == ""


def test_drawings_are_bounded() -> None:
    displays = LiveDisplays()
    for key in range(1_000):
        displays.draw(key, "x" * 1_000_000)
    assert sum(map(len, displays.drawings)) < 1_000_000
    displays.end(0)
    assert len(displays.drawings) == 7
