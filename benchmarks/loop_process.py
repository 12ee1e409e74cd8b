"""`training_loop.py` in a fresh process, under whatever is put before it or into it, and what it says of itself."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments import HERE, last_line, python_of
from pseudo_terminal import PseudoTerminal
from rounds import Absent

LOOP = HERE / "training_loop.py"
_MAX_S = 240.0
"""A contender that is not through by then is left out."""


@dataclass(frozen=True)
class Contender:
    """A way to run the loop.

    Attributes:
        prefix: words between the interpreter and the script; `{folder}` stands for a place to write to.
        follow: the file in `contenders/` that takes part in the loop, with its option after a colon.
        environment: the requirements that it needs, None for the present interpreter.
        on_a_terminal: whether it is run in a pseudo-terminal.
        before: words before the interpreter (`taskset -c 0`).
        after: words between the script and its size.
    """

    prefix: Sequence[str] = ()
    follow: str | None = None
    environment: str | None = None
    on_a_terminal: bool = False
    before: Sequence[str] = ()
    after: Sequence[str] = ()


@dataclass(frozen=True)
class Length:
    """How long a loop is run: seconds that count, seconds before that do not."""

    seconds: float = 3.0
    warmup: float = 1.0


def run(contender: Contender, size: str, length: Length) -> dict[str, Any]:
    """What the loop reports; `whole_s` is the time from start to end. Raises Absent."""
    python = python_of(contender.environment)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        prefix = [word.format(folder=folder) for word in contender.prefix]
        command = [*contender.before, python, *prefix, str(LOOP), *contender.after]
        command += [size, "--seconds", str(length.seconds), "--warmup", str(length.warmup)]
        if contender.follow is not None:
            command += ["--follow", contender.follow]
        environment = os.environ | {"STEP_COST_RESULT": str(result), "BENCHMARK_FOLDER": folder, "OMP_NUM_THREADS": "1"}
        began = time.monotonic()
        if contender.on_a_terminal:
            _run_on_a_terminal(command, environment, result)
        else:
            _run_in_the_background(command, environment, folder)
        found: dict[str, Any] = json.loads(result.read_text())
        found["whole_s"] = time.monotonic() - began
        return found


def _run_in_the_background(command: list[str], environment: dict[str, str], folder: str) -> None:
    with open(Path(folder, "said.txt"), "w+b") as output:
        try:
            ran = subprocess.run(
                command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                timeout=_MAX_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Absent(f"not through within {_MAX_S:.0f} s") from None
        output.seek(0)
        if not Path(environment["STEP_COST_RESULT"]).exists():
            raise Absent(f"exit code {ran.returncode}: {last_line(output.read().decode(errors='replace'))}")


def _run_on_a_terminal(command: list[str], environment: dict[str, str], result: Path) -> None:
    """The screen stays up when the script has ended: it is left with `q`."""
    with PseudoTerminal(command, environment) as terminal:
        if not terminal.read_until(lambda: result.exists() and result.stat().st_size, _MAX_S):
            raise Absent("no result: " + repr(terminal.drawn[-200:]))
        terminal.read_until(lambda: False, 0.5)
        terminal.type("q")
        terminal.read_until(lambda: False, 3.0)
