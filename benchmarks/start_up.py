"""How long until something is seen: the first paint of the screen, and the first line of the script, against plain python.

    python benchmarks/start_up.py --rounds 9

Two scripts: one that prints at once, one that imports torch first. Each in a fresh process, taking turns: plain python,
`gradtui --plain`, and gradtui on a pseudo-terminal. Times run from the start of the process, by the clock, and are shown as
multiples of plain python's until the same script's first line.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from environments import last_line
from pseudo_terminal import PseudoTerminal
from rounds import Absent, Rounds, Sample, time_text

FIRST_LINE = "import os, time; open(os.environ['FIRST_LINE'], 'w').write(str(time.monotonic())); print('hello')\n"
SCRIPTS = {"prints at once": FIRST_LINE, "imports torch first": "import torch\n" + FIRST_LINE}
_MAX_S = 60.0


def started(prefix: list[str], script: str, *, on_a_terminal: bool) -> Sample:
    """Seconds until the first line of the script, and until the first paint where there is a screen."""
    with tempfile.TemporaryDirectory() as folder:
        first_line, path = Path(folder, "first.txt"), Path(folder, "script.py")
        path.write_text(script)
        command = [sys.executable, *prefix, str(path)]
        environment = os.environ | {"FIRST_LINE": str(first_line)}
        if on_a_terminal:
            with PseudoTerminal(command, environment) as terminal:
                began = terminal.began
                terminal.read_until(
                    lambda: terminal.painted is not None and first_line.exists() and first_line.read_text(), _MAX_S
                )
                painted = terminal.painted
                terminal.read_until(lambda: False, 0.3)
                terminal.type("q")
                terminal.read_until(lambda: False, 2.0)
        else:
            began, painted = time.monotonic(), None
            ran = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=_MAX_S, check=False,
            )  # fmt: skip
            if not first_line.exists():
                raise Absent(last_line(ran.stderr))
        if not first_line.exists():
            raise Absent("the script's first line was never reached")
        found = {"first_line_s": float(first_line.read_text()) - began}
        # So that one table can have both: what paints nothing is compared by its first line.
        return found | {"seen_s": (painted - began) if painted is not None else found["first_line_s"]}


def main() -> None:
    """Read the arguments and print a table for each script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    for title, script in SCRIPTS.items():
        rounds = Rounds("python")
        contenders: dict[str, Callable[[], Sample]] = {
            "python": partial(started, [], script, on_a_terminal=False),
            "gradtui --plain": partial(started, ["-m", "gradtui", "--plain"], script, on_a_terminal=False),
            "gradtui, screen": partial(started, ["-m", "gradtui"], script, on_a_terminal=True),
        }
        rounds.take_turns(contenders, arguments.rounds)
        base = rounds.compare("python", "first_line_s")
        print(f"\na script that {title}: python needs {time_text(base.value).strip()} to its first line")
        for name in rounds.present()[1:]:
            line = rounds.compare(name, "first_line_s")
            print(
                f"  {name:<18} first line {line.ratio:6.2f}x ({line.lowest:.2f} to {line.highest:.2f})  "
                f"+{time_text(line.more)}"
            )
            if name == "gradtui, screen":
                seen = rounds.compare(name, "seen_s")
                print(
                    f"  {name:<18} first paint {seen.ratio:5.2f}x ({seen.lowest:.2f} to {seen.highest:.2f})  "
                    f"after {time_text(seen.value)}"
                )
        rounds.print_absent()


if __name__ == "__main__":
    main()
