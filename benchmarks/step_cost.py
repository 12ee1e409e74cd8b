"""What a step costs under gradtui against the same loop without, and whether what it says of that is true.

    python benchmarks/step_cost.py 0.5 gpt

For each size of step: gradtui under `--plain` and with its screen, as they are and with other budgets (`--ways`), each in
several processes that take turns of half a second with as many of the loop alone (`turn_taking.py`). Of all turns of a way the
third with the shortest steps counts, since other processes only ever make steps longer. The table shows the ratio of
these means, by the clock and in CPU time of the training thread, with the range in which it lies when rounds and processes are
drawn by chance from those there were (19 of 20 drawings); and what gradtui itself counted as its cost in these turns (what the
header shows), as a share of what was measured.

The loop has one idle thread: from the first thread a process starts, a short step takes 1 to 2 % longer, whatever that thread
does, and even if it has ended: probably since the allocator and some reference counts of torch's C++ lock from then on. Scripts
whose torch runs on several cores, with a DataLoader's workers or a progress bar have threads anyway; a loop with none is shown
too.

The wait between two turns is a long step to gradtui, as a pause of the script's is; the first tenth of a second of each turn
(`--uncounted`) is left out for that, and because another process has used the caches. The warm-up is spent on measurements that
no budget limits, and left out too.
"""

from __future__ import annotations

import argparse

from loop_process import Contender
from rounds import Absent, Sample, time_text
from turn_taking import Samples, Turns, mean, quiet_third, ratio, take_turns

_NONE, _NO_THREAD = "none", "no thread"
_PLAIN = ("-m", "gradtui", "--plain")
WAYS: dict[str, Contender] = {
    _NO_THREAD: Contender(),
    "plain": Contender(_PLAIN),
    "screen": Contender(("-m", "gradtui"), on_a_terminal=True),
    "record": Contender((*_PLAIN, "--record", "{folder}/run.jsonl")),
    **{f"plain,{budget}": Contender((*_PLAIN, "--budget", budget)) for budget in ("0.1%", "5%")},
}


def print_table(samples: Samples, name: str) -> None:
    """One line."""
    line = f"  {name:<12}"
    for clock, quantity in (("wall", "wall_us"), ("CPU", "cpu_us")):
        found = ratio(samples, name, _NONE, quantity)
        line += f" {clock} {found.value:.3f}x ({found.low:.3f} to {found.high:.3f}) "
    if name not in (_NONE, _NO_THREAD):
        quiet, alone = _quiet(samples, name), mean(_quiet(samples, _NONE), "cpu_us")
        used, shown = mean(quiet, "cpu_us"), mean(quiet, "said_us")
        # What lies within the spread of the loop alone is no measure for anything.
        is_clear = found.value > ratio(samples, _NONE, _NONE, "cpu_us").high
        part = f", {shown / (used - alone):.2f} of what is measured" if is_clear else ""
        line += f"  {_time(used - alone)} a step more; says {_time(shown)} ({100 * shown / used:.2f} %){part}"
    print(line, flush=True)


def _quiet(samples: Samples, name: str) -> list[Sample]:
    return quiet_third([sample for row in samples for sample in row[name]])


def _time(microseconds: float) -> str:
    return time_text(microseconds / 1e6).strip()


def main() -> None:
    """Read the arguments and print a table for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=["0.5", "gpt"])
    parser.add_argument("--ways", nargs="*", default=[_NO_THREAD, "plain", "screen"], choices=WAYS)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=3, help="of each way")
    parser.add_argument("--seconds", type=float, default=Turns.seconds, help="of each turn")
    parser.add_argument("--uncounted", type=float, default=Turns.uncounted, help="seconds before them")
    parser.add_argument("--warmup", type=float, default=Turns.warmup)
    arguments = parser.parse_args()
    ways = {_NONE: Contender(after=("--idle-thread",)), **{name: WAYS[name] for name in arguments.ways}}
    turns = Turns(arguments.seconds, arguments.uncounted, arguments.warmup)
    for size in arguments.sizes:
        try:
            samples = take_turns(ways, size, arguments.rounds, arguments.processes, turns)
        except Absent as why:
            print(f"{size}: {why}")
            continue
        alone = mean(_quiet(samples, _NONE), "wall_us")
        print(f"\n{size}: alone a step takes {_time(alone)}; {arguments.rounds} rounds of {turns.seconds:g} s")
        for name in ways:
            print_table(samples, name)


if __name__ == "__main__":
    main()
