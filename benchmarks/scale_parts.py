"""What `scale.py` measures in a process of its own: `python scale_parts.py KIND PARAMETERS`, which prints one line of JSON.

KIND is `none` (no probe), `marked`, `measured` or `examined` (what is done to every step that counts), or `screen`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import psutil
import torch
from torch import Tensor, nn

from gradtui.probe.hooks import install
from gradtui.probe.probe import Probe
from gradtui.probe.runtime import ProbeOptions
from gradtui.probe.samplers.cpu_memory import cpu_allocator
from gradtui.protocol import events as ev
from gradtui.transport.in_process import CommandQueue, EventQueue

_ALWAYS = 10**9
_COUNTED_S = 0.7
"""Steps are taken for so long, but at least `_MIN`."""
_MIN = 3
_WARM_UP = 18
"""Steps until the probe has seen what it wants to see of a new model: its cadences warm up for 16."""
_TIMES = 9
_IN_A_GROUP = 50


class Wide(nn.Module):
    """Layers of two parameters each side by side in groups of 50, so that the graph is wide and never deep."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        layers = [nn.Linear(4, 4) for _ in range(parameters // 2)]
        groups = [nn.ModuleList(layers[start : start + _IN_A_GROUP]) for start in range(0, len(layers), _IN_A_GROUP)]
        self.groups = nn.ModuleList(groups)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([layer(x) for group in self.groups for layer in cast("nn.ModuleList", group)]).mean()


class Training:
    """A model with a given number of parameters, its optimizer and its step."""

    def __init__(self, parameters: int) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = Wide(parameters)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.x = torch.randn(4, 4)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.x).backward()
        self.optimizer.step()


def _probe(kind: str) -> tuple[Probe, EventQueue]:
    """A probe without a budget, that takes its warm-up and then does to every step what the kind says."""
    queue = EventQueue()
    probe = Probe(queue.put, cpu_allocator(), ProbeOptions(CommandQueue(), budget=0.0))
    if kind == "measured":
        probe.norms._cadence.force(_ALWAYS)
    if kind in ("examined", "screen"):
        probe.step_sampler._cadence.force(_ALWAYS)
    return probe, queue


def steps(kind: str, parameters: int) -> dict[str, float]:
    """CPU seconds of this thread per step after the warm-up, of the first sight of the model, and bytes in memory."""
    training = Training(parameters)
    found: dict[str, float] = {}
    if kind != "none":
        probe, _ = _probe(kind)
        list_models = probe.view._list

        def timed(*arguments: Any, **options: Any) -> None:
            began = time.thread_time()
            list_models(*arguments, **options)
            found.setdefault("tree_s", time.thread_time() - began)

        probe.view._list = timed  # type: ignore[method-assign]
        install(probe)
    for _ in range(_WARM_UP):
        training.step()
    # Of a few steps of a large model, one may have a full collection of all objects in it: none of them shall.
    gc.collect()
    began, cpu, done = time.perf_counter(), time.thread_time(), 0
    while done < _MIN or time.perf_counter() - began < _COUNTED_S:
        training.step()
        done += 1
    found["step_s"] = (time.thread_time() - cpu) / done
    found["rss"] = psutil.Process().memory_info().rss
    return found


class _Given:
    """Hands out the events that it is given, and takes no commands."""

    dropped = 0

    def __init__(self) -> None:
        self.waiting: list[ev.Event] = []

    def drain(self, limit: int) -> Sequence[ev.Event]:
        given, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return given

    def seen(self, events: Sequence[ev.Event]) -> None:
        """Pass them on to nobody."""

    def submit(self, make: Callable[[int], Any]) -> Any:
        return make(1)


async def _screen(events: list[ev.Event]) -> dict[str, float]:
    from gradtui.tui.app.app import GradtuiApp

    source: Any = _Given()
    done = 0
    app = GradtuiApp(source, source, refresh_hz=0)
    before = psutil.Process().memory_info().rss
    async with app.run_test(size=(160, 50)) as pilot:

        async def cpu_of(change: Callable[[], object], draw: Callable[[], object]) -> float:
            spent = []
            for _ in range(_TIMES):
                change()
                await pilot.pause()
                began = time.thread_time()
                draw()
                await pilot.pause()
                spent.append(time.thread_time() - began)
            return statistics.median(spent)

        async def filtered(text: str) -> float:
            began = time.thread_time()
            tree.set_filter(text)
            app.dashboard.draw("tree")
            await pilot.pause()
            return time.thread_time() - began

        def train() -> None:
            nonlocal done
            done += 1
            norms = tuple(done * norm if norm else norm for norm in measured.norms or ())
            source.waiting.append(replace(measured, step=measured.step + done, norms=norms))
            app._drain()

        source.waiting += events
        app.pump()
        await pilot.pause()
        tree = app.dashboard.tree_view
        tree.action_unfold_all()
        measured = [event for event in events if isinstance(event, ev.GradientsMeasured)][-1]
        nothing = await cpu_of(lambda: None, lambda: None)
        found = {"redraw_s": await cpu_of(train, lambda: app.dashboard.draw("tree")) - nothing}
        keys = [await filtered(text) - nothing for text in ("w", "we", "wei", "weig", "wei", "we", "w", "")]
        return found | {"key_s": max(keys), "screen_rss": psutil.Process().memory_info().rss - before}


def screen(parameters: int) -> dict[str, float]:
    """CPU seconds of a redraw of the tree and of the dearest key of a filter, at 160×50, and bytes that the screen needs."""
    training = Training(parameters)
    probe, queue = _probe("screen")
    install(probe)
    for _ in range(3):
        training.step()
    probe.detach()
    return asyncio.run(_screen(queue.drain(1_000_000)))


if __name__ == "__main__":
    kind, parameters = sys.argv[1], int(sys.argv[2])
    print(json.dumps(screen(parameters) if kind == "screen" else steps(kind, parameters)))
