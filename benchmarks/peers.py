"""The same loop under gradtui and under everything that people use in its place: what each costs per step.

    python benchmarks/peers.py 0.5 gpt gpt300 --rounds 5

Every contender runs the loop in a fresh process, all taking turns. The tables show the median and the spread of each round's
ratio to the loop alone, of the same round: by the clock (`wall`), and in CPU time of all threads of the process (`CPU`),
which a busy machine disturbs less but which does not know of waiting; and how much longer a run takes from start to end
besides its steps. Packages are installed into environments of their own on first use (see `environments.py`); one that cannot
be is a line. Whatever a contender does in a process of its own (wandb, TraceML's aggregator) is not in its CPU time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from environments import HERE
from loop_process import Contender, Length, run
from rounds import Rounds, Sample, time_text

_TRACEML = str(HERE / ".environments" / "traceml" / "bin" / "traceml")
GRADTUI_PLAIN = Contender(("-m", "gradtui", "--plain"))
GRADTUI_SCREEN = Contender(("-m", "gradtui"), on_a_terminal=True)
CONTENDERS: dict[str, Contender] = {
    "none": Contender(),
    "gradtui --plain": GRADTUI_PLAIN,
    "gradtui, screen": GRADTUI_SCREEN,
    "norms by .item()": Contender(follow="item_norms"),
    "wandb.watch, every step": Contender(follow="wandb_watch:1", environment="wandb"),
    "wandb.watch, every 100": Contender(follow="wandb_watch:100", environment="wandb"),
    "TensorBoard, every step": Contender(follow="tensorboard_histograms:1", environment="tensorboard"),
    "TensorBoard, every 100": Contender(follow="tensorboard_histograms:100", environment="tensorboard"),
    "TraceML": Contender(
        (_TRACEML, "run", "--mode", "summary", "--logs-dir", "{folder}"),
        "traceml_steps", "traceml", after=("--args",),
    ),
    "nn-htop, no screen": Contender(follow="nn_htop_hooks", environment="nn_htop"),
    "nn-htop, screen": Contender(follow="nn_htop_screen", environment="nn_htop", on_a_terminal=True),
    "torch-audit, every step": Contender(follow="torch_audit_steps:1", environment="torch_audit"),
    "torch-audit, every 1000": Contender(follow="torch_audit_steps:1000", environment="torch_audit"),
    "torchmortem, fast": Contender(follow="torchmortem_autopsy:fast", environment="torchmortem"),
    "torch.profiler, memory": Contender(follow="profiler_memory"),
    "MemTracker": Contender(follow="mem_tracker"),
}  # fmt: skip
BASELINE = "none"


def measured(contender: Contender, size: str, length: Length) -> Sample:
    """The quantities of one run that the tables show."""
    found = run(contender, size, length)
    return {name: float(found[name]) for name in ("wall_us", "process_us", "whole_s")}


def print_table(rounds: Rounds, size: str) -> None:
    """A table, the cheapest first."""
    rows = [(name, rounds.compare(name, "wall_us"), rounds.compare(name, "process_us")) for name in rounds.present()]
    base = rows[0][1]
    print(f"\n{size}: alone a step takes {time_text(base.baseline / 1e6).strip()}; {base.rounds} rounds")
    print(f"  {'':<26}{'wall':>9}  {'spread':<15}{'per step':>12} {'CPU':>9}  {'spread':<15}{'start and end':>14}")
    for name, wall, cpu in sorted(rows, key=lambda row: row[1].ratio):
        # On a terminal the end waits until the user leaves the screen.
        is_alone = not CONTENDERS[name].on_a_terminal
        whole = f"{rounds.compare(name, 'whole_s').more:+.1f} s" if is_alone else "-"
        spread, cpu_spread = (f"{row.lowest:.2f} to {row.highest:.2f}" for row in (wall, cpu))
        more = "" if name == BASELINE else f"{wall.more / 1e3:+.3f} ms"
        print(f"  {name:<26}{wall.ratio:8.3f}x  {spread:<15}{more:>12} {cpu.ratio:8.3f}x  {cpu_spread:<15}{whole:>14}")
    rounds.print_absent()


def main() -> None:
    """Read the arguments and print a table for each size of step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=["0.5", "gpt", "gpt300"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument(
        "--warmup",
        type=float,
        help="seconds left out at the start of each run (1; for long steps 16 of them, as our own)",
    )
    parser.add_argument("--only", nargs="*", default=list(CONTENDERS), metavar="NAME", help="contenders, beside none")
    arguments = parser.parse_args()
    wanted = [name for name in CONTENDERS if name == BASELINE or any(part in name for part in arguments.only)]
    for size in arguments.sizes:
        rounds = Rounds(BASELINE)
        is_long = size == "gpt300"
        warmup = arguments.warmup if arguments.warmup is not None else 10.0 if is_long else 1.0
        length = Length(2 * arguments.seconds if is_long else arguments.seconds, warmup)
        contenders: dict[str, Callable[[], Sample]] = {
            name: partial(measured, CONTENDERS[name], size, length) for name in wanted
        }
        rounds.take_turns(contenders, arguments.rounds)
        print_table(rounds, size)


if __name__ == "__main__":
    main()
