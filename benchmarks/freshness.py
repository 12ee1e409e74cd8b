"""How old what the screen shows is: the step of the header, of the curves, and of the memory by phase.

    python benchmarks/freshness.py 5 50 500

A script with steps of 5, 50 and 500 ms trains a small model, sleeps for the rest of each step, and writes down when each step
ended. It runs under gradtui in a pseudo-terminal at 160×50, which is read four times a second after a warm-up.

*age* is the time since the end of the step that is shown. *behind* is the time since the end of the next step that was
measured, as the recording of the run has them: how long newer figures could have been on the screen. Where every step is
measured, age is at most a step longer.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyte
from pseudo_terminal import COLUMNS, LINES, PseudoTerminal

from gradtui.protocol import events as ev
from gradtui.records.recording import Recording

TRAIN = """
import sys, time
import torch
from torch import nn

seconds, ends = float(sys.argv[1]), time.monotonic() + float(sys.argv[3])
torch.set_num_threads(1)
model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.GELU())), nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters())
inputs, targets = torch.randn(16, 32), torch.randint(0, 10, (16,))
with open(sys.argv[2], "w", buffering=1) as file:
    step = 0
    while time.monotonic() < ends:
        began = time.monotonic()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        step += 1
        print(step, time.monotonic(), file=file)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
"""

_STEP = r"\bstep (\d{1,3}(?:,\d{3})*)(?![\d.kM])"
PLACES = {
    "header": re.compile(rf"\A.*?{_STEP}"),
    "curves": re.compile(rf"‖g‖ .*?{_STEP}"),
    "memory": re.compile(rf"by phase · {_STEP}"),
}
"""Where each part says its step; the header is the first line."""

_VIEWS = 3
"""Of the memory panel: within a step, over steps, by phase."""

LIMITS = {"header": 1.0, "curves": 1.5, "memory": 1.5}
"""Seconds that a part may be behind at most."""

_READS_PER_SECOND = 4
_START_S, _STOP_S = 60.0, 10.0


class Shown(NamedTuple):
    """What a part showed."""

    at: float
    """By the clock of `time.monotonic`."""
    step: int


def step_shown(part: str, text: str) -> int | None:
    """Return the step that a part of the screen shows, None if it shows none."""
    found = PLACES[part].search(text.partition("\n")[0] if part == "header" else text)
    return int(found[1].replace(",", "")) if found is not None else None


@dataclass
class Run:
    """When each step ended, which steps each part could show, and what it showed."""

    ended: dict[int, float] = field(default_factory=dict)
    known: dict[str, Collection[int]] = field(default_factory=dict)
    shown: dict[str, list[Shown]] = field(default_factory=lambda: {part: [] for part in PLACES})

    def ages(self, part: str) -> list[float]:
        """Seconds since the end of the step shown, at each reading."""
        return [at - self.ended[step] for at, step in self.shown[part] if step in self.ended]

    def behind(self, part: str) -> list[float]:
        """Seconds since the end of the next step that the part could show, at each reading; 0 if there was none yet."""
        steps = sorted(step for step in self.known[part] if step in self.ended)
        found = []
        for at, step in self.shown[part]:
            after = bisect_right(steps, step)
            found.append(max(0.0, at - self.ended[steps[after]]) if after < len(steps) else 0.0)
        return found


def watched(step_s: float, warmup: float, seconds: float, options: Sequence[str]) -> Run:
    """Run the script on a terminal, and read what it shows."""
    run = Run()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script, ends, recording = folder / "train.py", folder / "ends.txt", folder / "run.jsonl"
        script.write_text(TRAIN)
        lasts = warmup + seconds + 2
        command = [sys.executable, "-m", "gradtui", *options, "--record", str(recording), str(script)]
        command += [str(step_s), str(ends), str(lasts)]
        screen = pyte.Screen(COLUMNS, LINES)
        stream = pyte.ByteStream(screen)
        with PseudoTerminal(command, {"XDG_STATE_HOME": name}, stream.feed) as terminal:
            if not terminal.read_until(lambda: ends.exists() and ends.read_text(), _START_S):
                raise SystemExit("the script took no step:\n" + "\n".join(screen.display))
            warm = time.monotonic() + warmup
            terminal.read_until(lambda: False, warmup / 2)
            for _ in range(_VIEWS):
                if PLACES["memory"].search("\n".join(screen.display)):
                    break
                terminal.type("m")  # the next view of the memory
                terminal.read_until(lambda: False, warmup / 4 / _VIEWS)
            terminal.read_until(lambda: False, warm - time.monotonic())
            began = time.monotonic()
            for index in range(round(seconds * _READS_PER_SECOND)):
                terminal.read_until(lambda: False, began + index / _READS_PER_SECOND - time.monotonic())
                at, text = time.monotonic(), "\n".join(screen.display)
                for part, found in run.shown.items():
                    step = step_shown(part, text)
                    if step is not None:
                        found.append(Shown(at, step))
            terminal.read_until(lambda: "exit code" in "\n".join(screen.display), _STOP_S)
            terminal.type("\x1b")
            terminal.read_until(lambda: False, 0.5)
            terminal.type("q")
            terminal.read_until(lambda: False, 3.0)
        rows = (line.split() for line in ends.read_text().splitlines())
        run.ended = {int(step): float(at) for step, at in rows}
        events = list(Recording(recording).events())
        run.known = {
            "header": run.ended.keys(),
            "curves": {step for event in events for step in _steps_with_norms(event)},
            "memory": {event.step for event in events if isinstance(event, ev.MemoryMeasured)},
        }
    return run


def _steps_with_norms(event: ev.Event) -> list[int]:
    if isinstance(event, ev.StepsMeasured):
        return [figures.step for figures in event.figures if figures.total is not None]
    return [event.step] if isinstance(event, ev.GradientsMeasured) and event.total is not None else []


def main() -> None:
    """Read the arguments and print a table for each length of step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", type=float, default=[5.0, 50.0, 500.0], help="milliseconds")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--warmup", type=float, default=10.0)
    parser.add_argument("--option", action="append", default=[], help="of gradtui, such as --option=--refresh=2")
    arguments = parser.parse_args()
    for milliseconds in arguments.steps:
        run = watched(milliseconds / 1e3, arguments.warmup, arguments.seconds, arguments.option)
        print(f"\nsteps of {milliseconds:g} ms, {arguments.seconds:g} s after {arguments.warmup:g} s; seconds")
        print(
            f"  {'':<8}{'age: max':>10}{'median':>8}{'behind: max':>14}{'median':>8}{'limit':>8}{'steps measured':>17}"
        )
        for part in PLACES:
            ages, behind = run.ages(part), run.behind(part)
            if not ages:
                print(f"  {part:<8}  showed no step")
                continue
            figures = f"{max(ages):>10.2f}{statistics.median(ages):>8.2f}{max(behind):>14.2f}"
            figures += f"{statistics.median(behind):>8.2f}{LIMITS[part]:>8.1f}"
            verdict = "" if max(behind) <= LIMITS[part] else "  above the limit"
            print(f"  {part:<8}{figures}{len(run.known[part]):>10} of {len(run.ended)}{verdict}", flush=True)


if __name__ == "__main__":
    main()
