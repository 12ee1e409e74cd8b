"""What one redraw of the screen takes of the UI thread at 160×50, part by part.

    python benchmarks/redraw.py

CPU time of the thread, medians in milliseconds: what the events of a step take to be applied (no part of the redraw), what
gradtui draws after them, and what Textual composes and writes then, to a driver that drops it, until the screen is up to date.
A redraw is the header and one part, as in one tick of the app; `key` moves the cursor instead, after the same events, so that
the tree and the explanation are drawn too. The tree is unfolded. Collections of all objects are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from textual.drivers.headless_driver import HeadlessDriver

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import ModelInfo, ModuleInfo, ParameterInfo, Phase
from gradtui.tui.app.app import GradtuiApp

SIZES = (100, 10_000, 100_000)
_IN_A_GROUP = 50
_WARM_UP = 14
"""Redraws before those that count: until sparklines are full."""
_TURNS = 20
"""Turns of the event loop after the screen was written, in which Textual's widgets become idle."""


class Terminal(HeadlessDriver):
    """Drops what is written, which Textual renders as for a terminal."""

    writes = 0

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        if data:
            Terminal.writes += 1


class Given:
    """Hands out the events that it is given, and takes no commands."""

    dropped = 0

    def __init__(self, *events: ev.Event) -> None:
        self.waiting: list[ev.Event] = list(events)

    def drain(self, limit: int) -> Sequence[ev.Event]:
        given, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return given

    def seen(self, events: Sequence[ev.Event]) -> None:
        """No other viewer follows."""

    def submit(self, make: Callable[[int], Any]) -> Any:
        return make(1)


def model(parameters: int) -> ev.ModelsFound:
    """Groups of 50 modules of a weight and a bias each."""
    layers = parameters // 2
    groups = [range(first, min(layers, first + _IN_A_GROUP)) for first in range(0, layers, _IN_A_GROUP)]
    modules = [ModuleInfo("", "Wide", "Wide", 0, -1, 0, 0, 2 * layers, 1 + len(groups) + layers)]
    tensors: list[ParameterInfo] = []
    for number, group in enumerate(groups):
        above, name = len(modules), str(number)
        modules.append(ModuleInfo(name, name, "Block", 1, 0, 2 * group.start, 0, 2 * len(group), 1 + len(group)))
        for layer in group:
            own = f"{name}.fc{layer - group.start}"
            modules.append(ModuleInfo(own, own.rpartition(".")[2], "Linear", 2, above, 2 * layer, 2, 2, 1))
            for each, shape, count in (("weight", (4, 4), 16), ("bias", (4,), 4)):
                path = f"{own}.{each}"
                tensors.append(ParameterInfo(path, (path,), shape, "float32", count, 4 * count, len(modules) - 1))
    return ev.ModelsFound(0.5, 0, (ModelInfo("Wide", "Wide", 0),), tuple(modules), tuple(tensors))


def norms(found: ev.ModelsFound, step: int) -> Iterator[ev.Event]:
    """A step of which every norm is new."""
    phases = (ev.PhaseTime(Phase.FORWARD, 0.018, 1), ev.PhaseTime(Phase.BACKWARD, 0.021 + step / 1e4, 1))
    row = tuple(float(step + index % 7) for index in range(len(found.parameters)))
    yield ev.Progress(1 + step / 10, step, 1, 1, 0, (1,), phases, 4e-5, 1, 1)
    yield ev.GradientsMeasured(1 + step / 10, step, 1.0 + step % 5, 2.3 / step, row)


def _sampled(found: ev.ModelsFound, step: int, states: str) -> Iterator[ev.Event]:
    yield from norms(found, step)
    modules = found.modules
    is_leaf = [module.subtree_modules == 1 for module in modules]
    ends = [module.first_parameter + module.subtree_parameters for module in modules]
    trains = [states.find("T", module.first_parameter, end) >= 0 for module, end in zip(modules, ends)]
    reach = "".join("e" if each else "-" for each in trains)
    saved = tuple(1_000 + step if leaf else 0 for leaf in is_leaf)
    flags, count = states.translate({ord("C"): "0", ord("T"): "1"}), len(modules)
    yield ev.ParametersClassified(float(step), step, states, flags)
    yield ev.GradientFlowMeasured(float(step), step, 0, reach, "g" * count, "1" * count, tuple(range(count)), (1_000,))
    yield ev.SavedBytesMeasured(float(step), step, saved, sum(saved), tuple(2 if leaf else -1 for leaf in is_leaf))


def sample(found: ev.ModelsFound, step: int) -> Iterator[ev.Event]:
    """A sampled step: every norm and all that autograd keeps is new. Every other module is frozen."""
    return _sampled(found, step, "CCTT" * (len(found.parameters) // 4))


def freeze(found: ev.ModelsFound, step: int) -> Iterator[ev.Event]:
    """A sampled step after a change: of the modules in a row one fifth is frozen, or two."""
    count = len(found.parameters)
    frozen = count * (1 + step % 2) // 5
    return _sampled(found, step, "C" * frozen + "T" * (count - frozen))


def swap(found: ev.ModelsFound, step: int) -> Iterator[ev.Event]:
    """The worst case: every other module is frozen, and then the others."""
    return _sampled(found, step, ("CCTT", "TTCC")[step % 2] * (len(found.parameters) // 4))


async def settle() -> None:
    """Let Textual paint what is due."""
    before, until = Terminal.writes, time.monotonic() + 0.2
    while Terminal.writes == before and time.monotonic() < until:
        await asyncio.sleep(0.002)
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def redraws(parameters: int, part: str, events: Callable[..., Iterator[ev.Event]], times: int) -> list[float]:
    """Return the median CPU seconds of the events, the header, the part and Textual."""
    found = model(parameters)
    source = Given(ev.RunStarted(0.0, 0, "train.py", (), 1, "cpu", "cpu ledger", "2.13.0", "/tmp/log"), found)
    app = GradtuiApp(source, source, refresh_hz=0)  # type: ignore[arg-type]  # as much of a queue as the app uses
    app.driver_class = Terminal
    spent: list[tuple[float, ...]] = []
    async with app.run_test(size=(160, 50), headless=False) as pilot:
        app.pump()
        await pilot.pause()
        app.dashboard.tree_view.action_unfold_all()
        source.waiting += [*sample(found, 1), *sample(found, 2)]
        app.pump()
        await pilot.pause()
        if part == "key":
            app.dashboard.tree_view.move_to(10)
            await pilot.pause()
        # A collection of all objects falls on whoever allocates next.
        gc.collect()
        gc.freeze()
        gc.disable()
        for step in range(3, 3 + _WARM_UP + times):
            source.waiting += events(found, step)
            clock = [time.thread_time()]
            app._drain()
            clock.append(time.thread_time())
            if part != "key":
                app._draw_header()
            clock.append(time.thread_time())
            if part == "key":
                (app.dashboard.tree_view.action_cursor_up, app.dashboard.tree_view.action_cursor_down)[step % 2]()
            elif part != "header":
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
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--parts", nargs="*", default=("header", "tree", "gradients", "why", "key"))
    arguments = parser.parse_args()
    print(
        f"{'part':10}{'step':8}{'parameters':>11}{'events':>9}{'header':>9}{'part':>9}{'textual':>9}{'redraw':>9}  ms"
    )
    for part in arguments.parts:
        for events in (norms, sample, freeze, swap):
            for size in arguments.sizes:
                found = asyncio.run(redraws(size, part, events, arguments.times))
                cells = [*found, sum(found[1:])]
                print(
                    f"{part:10}{events.__name__:8}{size:>11,}" + "".join(f"{each * 1e3:9.2f}" for each in cells),
                    flush=True,
                )


if __name__ == "__main__":
    main()
