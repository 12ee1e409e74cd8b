"""Whether gradtui's own word about its cost is true, whether a budget holds, and what the screen takes of a core.

    python benchmarks/self_measured.py 0.5 20 gpt --rounds 5

For each size of step and each `--budget`: what gradtui counts as its own cost of a step (what the header shows), as a share
of what a step really takes longer than in the same script without gradtui (fresh processes, taking turns; by the clock, and
in CPU time of the training thread). The first seconds are left out: they are spent on warming up, which no budget limits. The
budget is for what measuring takes beside what is done at every step; `share` is of both together.

Then the duty of all threads but the training one, on one core (`taskset -c 0`) and on all: with the screen less without it is
what `--ui-budget` limits to 1 % by default. `--duty-seconds 0` leaves that out.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from functools import partial

from loop_process import Contender, Length, run
from rounds import Comparison, Rounds, Sample

BUDGETS = ("0.1%", "1%", "5%")
_PLAIN = ("-m", "gradtui", "--plain", "--summary", "{summary}")
_SCREEN = ("-m", "gradtui", "--summary", "{summary}")


def measured(contender: Contender, size: str, length: Length) -> Sample:
    """The clocks of one run, and what gradtui said of it."""
    found = run(contender, size, length)
    sample = {name: float(found[name]) for name in ("wall_us", "cpu_us", "others_share", "steps")}
    if "summary" in found:
        sample["said_us"], sample["said_share"] = found["said_us"], found["said_us"] / found["wall_us"]
        sample["norms"] = found["summary"]["gradient_norm"]["measured_steps"] / found["summary"]["steps"]
    return sample


def tell_budgets(size: str, length: Length, rounds_wanted: int) -> None:
    """What is said beside what is measured, for each budget."""
    rounds = Rounds("none")
    contenders: dict[str, Callable[[], Sample]] = {"none": partial(measured, Contender(), size, length)}
    for budget in BUDGETS:
        contender = Contender((*_PLAIN, "--budget", budget))
        contenders[f"--budget {budget}"] = partial(measured, contender, size, length)
    rounds.take_turns(contenders, rounds_wanted)
    print(f"\n{size}: {length.seconds:g} s after {length.warmup:g} s of warm-up")
    for name in rounds.present()[1:]:
        wall, cpu = rounds.compare(name, "wall_us"), rounds.compare(name, "cpu_us")
        said = rounds.median(name, "said_us")
        share, norms = (100 * rounds.median(name, quantity) for quantity in ("said_share", "norms"))
        print(
            f"  {name:<14} a step {wall.ratio:6.3f}x ({wall.lowest:.3f} to {wall.highest:.3f}), "
            f"CPU {cpu.ratio:6.3f}x ({cpu.lowest:.3f} to {cpu.highest:.3f}); "
            f"says {said:7.1f} µs a step, {share:.2f} %: {_part(said, wall)} by the clock, {_part(said, cpu)} CPU; "
            f"norms of {norms:.1f} % of steps"
        )
    rounds.tell_absent()


def _part(said: float, row: Comparison) -> str:
    """What is said as a share of what was measured, where that can be told from the noise."""
    return f"{said / row.more:.2f} of the {row.more:.1f} µs" if row.lowest > 1 else "of what is lost in the noise"


def tell_duty(size: str, length: Length, rounds_wanted: int) -> None:
    """What other threads than the training one take of a core, in per cent of the time."""
    one_core = ("taskset", "-c", "0")
    rounds = Rounds("none")
    contenders: dict[str, Callable[[], Sample]] = {}
    for where, before in (("", ()), (", one core", one_core)):
        if before and shutil.which(before[0]) is None:
            rounds.absent["one core"] = "there is no taskset here"
            continue
        ways = {"none": Contender(before=before), "--plain": Contender(_PLAIN, before=before),
                "screen": Contender(_SCREEN, before=before, on_a_terminal=True)}  # fmt: skip
        contenders |= {name + where: partial(measured, way, size, length) for name, way in ways.items()}
    rounds.take_turns(contenders, rounds_wanted)
    print(f"\n{size}: duty of all threads but the training one, per cent of the time; a step against none")
    for name in rounds.present():
        duty, wall = 100 * rounds.median(name, "others_share"), rounds.compare(name, "wall_us")
        cpu = rounds.compare(name, "cpu_us")
        print(
            f"  {name:<20} {duty:6.2f} %   wall {wall.ratio:6.3f}x ({wall.lowest:.3f} to {wall.highest:.3f})  "
            f"CPU of the training thread {cpu.ratio:6.3f}x"
        )
    rounds.tell_absent()


def main() -> None:
    """Read the arguments and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=["0.5", "20", "gpt"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warmup", type=float, default=5.0)
    parser.add_argument("--duty-seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    for size in arguments.sizes:
        tell_budgets(size, Length(arguments.seconds, arguments.warmup), arguments.rounds)
    for size in arguments.sizes if arguments.duty_seconds > 0 else ():
        tell_duty(size, Length(arguments.duty_seconds, arguments.warmup), max(1, arguments.rounds // 2))


if __name__ == "__main__":
    main()
