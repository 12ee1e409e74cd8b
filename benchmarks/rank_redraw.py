"""What a job of 64 ranks takes of the viewer's UI thread at 160×50: the events of one step of all ranks, and a redraw.

    python benchmarks/rank_redraw.py

CPU time of the thread, medians in milliseconds. Each rank reports the step with its phases, every gradient norm, and what all
ranks must have in common, as at every 16th step. `equal`: the norms are those of replicas. `unlike`: one rank has other norms
for every tenth parameter, and the column *ranks* is shown. `parts`: the parameters are sharded. A redraw is the header and one
part, with what Textual composes and writes then.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from redraw import Given, Terminal, model, sample, settle

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.tui.app.app import GradtuiApp

SIZES = (100, 1_000)
KINDS = ("equal", "unlike", "parts")
PARTS = ("header", "tree", "ranks", "why")
_WARM_UP = 10


def found_by(rank: int, ranks: int, parameters: int, kind: str) -> ev.ModelsFound:
    """The models of a rank."""
    found = replace(model(parameters), listing=1)
    if kind != "parts":
        return found
    # A parameter has 16 or 4 elements: some ranks have none of it.
    infos = tuple(replace(info, local_count=len(range(rank, info.count, ranks))) for info in found.parameters)
    return replace(found, parameters=infos)


def step_of(rank: int, step: int, parameters: int, kind: str) -> Iterator[ev.Event]:
    """What a rank reports of a step."""
    at = 1 + step / 10
    phases = (ev.PhaseTime(Phase.FORWARD, 0.018, 1), ev.PhaseTime(Phase.BACKWARD, 0.021, 1))
    yield ev.Progress(at, step, 1, 1, 0, (1,), phases, 4e-5, 1, 1)
    other = 1.5 if kind == "unlike" and rank == 41 else 1.0
    row = tuple((step + index % 7) * (other if index % 10 == 0 else 1.0) for index in range(parameters))
    yield ev.GradientsMeasured(at, step, 2.3 / step, 1.0 + rank / 100, row, listing=1)
    ones = "1" * parameters
    sums = tuple(range(step, step + parameters))
    yield ev.ReplicasMeasured(at, step, ones, ones, ((0.1,),), sums, listing=1)


def received(rank: int, event: ev.Event) -> ev.RankEvent:
    """An event as the viewer of the job receives it."""
    return ev.RankEvent(event.at, event.step, rank, 0, event)


async def redraws(ranks: int, parameters: int, kind: str, part: str, times: int) -> list[float]:
    """Return the median CPU seconds of the events of a step of all ranks, the header, the part and Textual."""
    source = Given(ev.RunStarted(0.0, 0, "train.py", (), 1, "cpu", "cpu ledger", "2.13.0", "/tmp/log"))
    app = GradtuiApp(source, source, refresh_hz=0)  # type: ignore[arg-type]  # as much of a queue as the app uses
    app.driver_class = Terminal
    if kind != "equal":
        app.dashboard.tree_view.chosen_columns = ("norm", "count", "ranks", "ratio", "saved")
    spent: list[tuple[float, ...]] = []
    async with app.run_test(size=(160, 50), headless=False) as pilot:
        for rank in range(ranks):
            source.waiting.append(ev.RankJoined(0.1, 0, rank, ranks, rank, "host", 100 + rank, 0))
            source.waiting.append(received(rank, found_by(rank, ranks, parameters, kind)))
        source.waiting += [received(0, event) for event in sample(model(parameters), 1)]
        app.pump()
        await pilot.pause()
        app.dashboard.tree_view.action_unfold_all()
        gc.collect()
        gc.freeze()
        gc.disable()
        for step in range(16, 16 + 16 * (_WARM_UP + times), 16):
            source.waiting += [
                received(rank, event) for rank in range(ranks) for event in step_of(rank, step, parameters, kind)
            ]
            clock = [time.thread_time()]
            app._drain()
            clock.append(time.thread_time())
            app._draw_header()
            clock.append(time.thread_time())
            if part != "header":
                app.dashboard.draw(part)
            clock.append(time.thread_time())
            await settle()
            clock.append(time.thread_time())
            spent.append(tuple(after - before for before, after in pairwise(clock)))
        gc.enable()
        gc.unfreeze()
    return [statistics.median(column) for column in zip(*spent[_WARM_UP:])]


def main() -> None:
    """Read the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=31)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--parts", nargs="*", default=PARTS)
    arguments = parser.parse_args()
    print(
        f"{'norms':10}{'part':8}{'parameters':>11}{'events':>9}{'header':>9}{'part':>9}{'textual':>9}{'redraw':>9}  ms"
    )
    for kind in arguments.kinds:
        for part in arguments.parts:
            for size in arguments.sizes:
                found = asyncio.run(redraws(arguments.ranks, size, kind, part, arguments.times))
                cells = [*found, sum(found[1:])]
                print(f"{kind:10}{part:8}{size:>11,}" + "".join(f"{each * 1e3:9.2f}" for each in cells), flush=True)


if __name__ == "__main__":
    main()
