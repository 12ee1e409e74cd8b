"""What the threads of gradtui's own take of a core while a script trains: the screen, the samplers, the recorder.

    python benchmarks/duty.py 0.5 gpt

The duty of all threads but the training one, in per cent of the time, on all cores and on one (`taskset -c 0`), each in a fresh
process, taking turns: with the screen less without it is what the dashboard takes. The first seconds are left out: they are
spent on drawing everything for the first time.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from functools import partial

from loop_process import Contender, Length, run
from rounds import Rounds, Sample

_PLAIN = ("-m", "gradtui", "--plain")
_SCREEN = ("-m", "gradtui")
_RECORD, _COMPRESSED = ("--record", "{folder}/run.jsonl"), ("--record", "{folder}/run.jsonl.zst")


def measured(contender: Contender, size: str, length: Length) -> Sample:
    """The share of one run's time."""
    return {"others_share": float(run(contender, size, length)["others_share"])}


def print_table(size: str, length: Length, rounds_wanted: int) -> None:
    """What other threads than the training one take of a core, in per cent of the time."""
    one_core = ("taskset", "-c", "0")
    rounds = Rounds("none")
    contenders: dict[str, Callable[[], Sample]] = {}
    for where, before in (("", ()), (", one core", one_core)):
        if before and shutil.which(before[0]) is None:
            rounds.absent["one core"] = "there is no taskset here"
            continue
        ways = {
            "none": Contender(before=before),
            "--plain": Contender(_PLAIN, before=before),
            "--plain --record": Contender((*_PLAIN, *_RECORD), before=before),
            "... to a .zst file": Contender((*_PLAIN, *_COMPRESSED), before=before),
            "screen": Contender(_SCREEN, before=before, on_a_terminal=True),
        }
        contenders |= {name + where: partial(measured, way, size, length) for name, way in ways.items()}
    rounds.take_turns(contenders, rounds_wanted)
    print(f"\n{size}: {length.seconds:g} s after {length.warmup:g} s, {rounds_wanted} rounds")
    for name in rounds.present():
        print(f"  {name:<28} {100 * rounds.median(name, 'others_share'):6.2f} % of the time in other threads")
    rounds.print_absent()


def main() -> None:
    """Read the arguments and print a table for each size of step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=["0.5", "gpt"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warmup", type=float, default=5.0)
    arguments = parser.parse_args()
    for size in arguments.sizes:
        print_table(size, Length(arguments.seconds, arguments.warmup), arguments.rounds)


if __name__ == "__main__":
    main()
