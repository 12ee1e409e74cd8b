"""The scripts, how each is run the three ways, and what its bar looks like. A script runs once each way, for all its tests."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.examples import nightly
from helpers.terminal_session import TerminalSession
from transparency.three_ways import Left, by_plain, by_python, by_screen

from gradtui.tui.screens.panel_layout import PanelLayout

from .seen import is_laid_out, is_shown, panel

SCRIPTS = Path(__file__).with_name("scripts")
WIDE, NARROW = (120, 36), (80, 24)

TIMES = re.compile(
    rb"\d+:\d\d(:\d\d)?(\.\d+ \d+)?"  # time spent and left, and the time and process of torch's log
    rb"|[\d.?]+ ?(it/s|s/it)|[\d.:]+\xe2\x80\xa6"  # how fast, and what a narrow bar has of these
    rb"|(?<=(runtime'|runtime\"|_second'|_second\"): )'?[\d.e+-]+'?"
    rb"|(?<=\xe2\x94\x81)(\xe2\x94\x81)+"  # the length of a bar by Rich: what the times leave of the line
    rb"| +"  # what erases a line is as long as the times were
)
"""What differs between any two runs of plain python."""


@dataclass(frozen=True)
class Case:
    """A script and its bar."""

    words: tuple[str, ...]
    size: tuple[int, int] = WIDE
    bar: Callable[[int], str] | None = None
    """What stands in the bar's line when so many steps have been executed."""
    stops: tuple[int, ...] = (1, 2)
    """The numbers of steps after the pause at which the bar on the screen is compared."""
    on_screen: dict[str, str] | None = field(default_factory=dict)
    """What else is set in its environment under the screen; None where that would show nothing that others do not.

    The bars of LoRA and amp are tqdm's, as the Trainer's and accelerate's are.
    """
    fresh: bool = False
    """Whether interpreters start for it, and are not forked."""


CASES = {
    "transformers": Case(("trainer.py",), WIDE, lambda step: f"| {step}/12 ["),
    "accelerate": Case(("accelerated.py", "no"), NARROW, lambda step: f"| {step}/12 ["),
    "accelerate in bf16": Case(("accelerated.py", "bf16"), on_screen=None),
    "Lightning": Case(("lightning_automatic.py",), NARROW, lambda step: f"| {2 * step}/7 ["),
    # Rich moves its bar only on what it takes for a terminal. Its steps are of two optimizers in turn.
    "Lightning by hand": Case(
        ("lightning_manual.py",),
        NARROW,
        lambda step: f" {step // 2}/6 ",
        (2, 4),
        nightly(None, {"TTY_COMPATIBLE": "1"}),
    ),
    "LoRA": Case(("lora.py",), NARROW, lambda step: f"| {step}/6 [", on_screen=nightly(None, {})),
    "amp": Case(("amp.py",), WIDE, lambda step: f"| {step}/12 [", on_screen=nightly(None, {})),
    # `test_compile.py` compares the graphs of all styles in one process.
    "compile": Case(("compiled.py", nightly("few", "all")), on_screen=None, fresh=True),
}


@dataclass(frozen=True)
class Runs:
    """What the three runs of a case left; `summaries` are gradtui's own, `counts` the framework's."""

    python: Left
    plain: Left
    screen: Left | None
    summaries: dict[str, dict[str, Any]]
    counts: dict[str, int]


def environment(case: Case, directory: Path) -> dict[str, str]:
    """Nothing is fetched, every move of a bar is drawn, in the width it has on the screen."""
    columns = str(PanelLayout(*case.size).output_columns)
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HOME": str(directory / "hf")}
    fixed = {"COLUMNS": columns, "TQDM_MININTERVAL": "0", "TORCHINDUCTOR_CACHE_DIR": str(directory / "inductor")}
    return {**offline, **fixed}


def run(case: Case, directory: Path) -> Runs:
    """Run a case the three ways."""
    environ = environment(case, directory)
    python = by_python(case.words, directory, scripts=SCRIPTS, fresh=case.fresh, **environ)
    plain_summary, screen_summary = directory / "plain.json", directory / "screen.json"
    plain = by_plain(
        case.words, directory, scripts=SCRIPTS, fresh=case.fresh, options=("--summary", str(plain_summary)), **environ
    )
    summaries = {"plain": json.loads(plain_summary.read_text())}
    screen = None
    if case.on_screen is not None:
        screen = by_screen(
            case.words, directory, scripts=SCRIPTS, fresh=case.fresh, options=("--summary", str(screen_summary)),
            size=case.size, look=lambda session: look(session, case, directory / "screen.log"),
            **environ, **case.on_screen,
        )  # fmt: skip
        summaries["screen"] = json.loads(screen_summary.read_text())
    return Runs(python, plain, screen, summaries, json.loads(python.files["counts.json"]))


def look(session: TerminalSession, case: Case, log: Path) -> None:
    """Hold the run, let it go on step by step, and look at its bar each time, in two sizes of the window."""
    if case.bar is None:
        return
    session.wait_for("pause")
    session.send("p")
    session.wait_until(lambda: re.search(r"‖ .* step \d.* paused ", session.text), "the pause")
    paused = re.search(r"‖ .* step (\d+)\b.* paused ", session.text)
    # A script may have executed steps before the key arrived.
    begun = int(paused[1])
    for step in range(begun + 1, begun + case.stops[-1] + 1):
        session.send("n")
        session.wait_until(lambda step=step: re.search(rf"‖ .* step {step}\b.* paused ", session.text), f"step {step}")
        if step - begun in case.stops:
            wait_for_bar(session, case.bar(step), log)
    for size in (NARROW if case.size == WIDE else WIDE, case.size):
        session.resize(*size)
        wait_for_bar(session, case.bar(begun + case.stops[-1]), log)
    session.send("p")


def wait_for_bar(session: TerminalSession, bar: str, log: Path) -> None:
    """Wait until this stands in one line of the panel, which shows what a terminal would, in a whole screen."""

    def there() -> bool:
        # Halfway through a redraw the panel may have no frame.
        with contextlib.suppress(AssertionError, StopIteration, ValueError, IndexError):
            return "".join(panel(session)).count(bar) == 1 and is_shown(session, log) and is_laid_out(session)
        return False

    session.wait_until(lambda: re.search("‖ .* paused ", session.text) and there(), f"the bar {bar!r}")
