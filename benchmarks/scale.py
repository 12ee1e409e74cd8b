"""How what gradtui costs grows with the number of parameters, from 10 to 100,000.

    python benchmarks/scale.py --rounds 3

Per step in CPU time of the training thread, against the same steps without a probe, each in a fresh process, taking turns: for
steps that are only marked, steps whose norms are measured, and steps that are examined (on a run, only as many of the last two
as the budget allows). Then what is done once, as a multiple of a step: the first sight of the model. Then the screen at
160×50, on the UI thread, against the smallest model's: a redraw of the unfolded tree, the dearest key typed into the filter.
Then memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from environments import HERE, last_line
from rounds import Absent, NoBaseline, Rounds, Sample, time_text

SIZES = (10, 100, 1_000, 10_000, 100_000)
KINDS = ("none", "marked", "measured", "examined", "screen")
_MAX_S = 300


def measured(kind: str, parameters: int) -> Sample:
    """One process of `scale_parts.py`."""
    command = [sys.executable, str(HERE / "scale_parts.py"), kind, str(parameters)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_MAX_S, check=False)
    except subprocess.TimeoutExpired:
        raise Absent(f"not through within {_MAX_S} s") from None
    if ran.returncode:
        raise Absent(last_line(ran.stderr))
    found: dict[str, float] = json.loads(last_line(ran.stdout))
    return found


def print_steps(by_size: dict[int, Rounds]) -> None:
    """Ratio, difference, and the slope from each size to the next."""
    for kind in KINDS[1:4]:
        print(f"\nevery step {kind}: CPU time of the training thread against none")
        added: dict[int, float] = {}
        for size, rounds in by_size.items():
            try:
                row = rounds.compare(kind, "step_s")
            except NoBaseline as why:
                print(f"  {size:>7,}  {why}")
                continue
            added[size] = row.more
            print(
                f"  {size:>7,}  {row.ratio:6.3f}x ({row.lowest:.3f} to {row.highest:.3f})  "
                f"+{time_text(row.more)} on {time_text(row.baseline)}"
            )
        print_slopes(added, "a step")


def print_slopes(values: dict[int, float], each: str) -> None:
    """What one parameter more adds, between neighbouring sizes."""
    slopes = [f"{(values[big] - values[small]) / (big - small) * 1e9:,.0f}" for small, big in pairwise(values)]
    print(f"    slope between sizes, ns a parameter and {each}: " + ", ".join(slopes))


def print_once(by_size: dict[int, Rounds]) -> None:
    """What is done once, and what is done on the screen."""
    print("\nfirst sight of the model: a multiple of one step without a probe")
    for size, rounds in by_size.items():
        times = rounds.median("marked", "tree_s") / rounds.median("none", "step_s")
        print(f"  {size:>7,}  {times:8.1f}x  {time_text(rounds.median('marked', 'tree_s'))}")
    smallest = next(iter(by_size))
    for name, quantity in (("a redraw of the tree", "redraw_s"), ("the dearest key of a filter", "key_s")):
        print(f"\n{name} at 160×50: against that of {smallest} parameters")
        base = by_size[smallest].median("screen", quantity)
        for size, rounds in by_size.items():
            value = rounds.median("screen", quantity)
            print(f"  {size:>7,}  {value / base:8.2f}x  {time_text(value)}")
    print("\nresident memory: added to that of training alone by the probe (every step examined), and by the screen")
    for size, rounds in by_size.items():
        row = rounds.compare("examined", "rss")
        screen = rounds.median("screen", "screen_rss")
        print(f"  {size:>7,}  {row.ratio:6.3f}x  +{row.more / 2**20:6.1f} MiB; screen +{screen / 2**20:6.1f} MiB")


def main() -> None:
    """Read the arguments and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    arguments = parser.parse_args()
    by_size: dict[int, Rounds] = {}
    for size in arguments.sizes:
        by_size[size] = Rounds("none")
        contenders: dict[str, Callable[[], Sample]] = {kind: partial(measured, kind, size) for kind in KINDS}
        by_size[size].take_turns(contenders, arguments.rounds)
        by_size[size].print_absent()
    print_steps(by_size)
    print_once(by_size)


if __name__ == "__main__":
    main()
