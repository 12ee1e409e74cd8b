"""What one step costs while its memory is followed, and what peak each way says: ours, torch's MemTracker, its profiler.

    python benchmarks/memory.py --rounds 7

Ours is two things: a step that is examined (the ledger at each phase, with the bytes saved for backward, by module; and the
states, norms and other figures of gradients that go with it; the ledger alone is a line of its own), and one that is taken
apart, operation by operation, for its peak.

All in one process, taking turns with steps of the loop alone; medians, the spread of single rounds, and ratios to those
steps; and each peak above the start of the step as a ratio to the profiler's, which sees every event of the allocator (of
MemTracker's, what the model and the optimizer hold at the start is taken off). MemTracker is made anew for each step, as its
second one would raise. The profiler's parsing is part of its cost. An examined step takes turns with steps that the probe only
marks, after the others: they shall not have its hooks.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from gradtui.probe.hooks import install
from gradtui.probe.memory.allocation_log import AllocationLog
from gradtui.probe.probe import Probe
from gradtui.probe.runtime import ProbeOptions
from gradtui.probe.samplers.cpu_memory import cpu_allocator
from gradtui.probe.torch_private.operation_mode import OperationMode
from gradtui.protocol.events import SavedBytesMeasured
from gradtui.transport.in_process import CommandQueue, EventQueue

Step = Callable[[], None]
_WARM_UP = 24
"""Steps until the probe has seen what it wants to see of a new model."""


def transformer(width: int, layers: int, batch: int, length: int) -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    """A model, its optimizer and one training step of it."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(batch, length, width)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def profiled_by_gradtui(step: Step) -> int:
    """The peak above the start, by our trace."""
    with AllocationLog("cpu", 0, lambda: -1) as trace:
        step()
    trace.close()
    return int(max(trace.curve))


class Nothing(OperationMode):
    """Is shown each operation and does nothing: what no follower in Python can be cheaper than."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation."""
        return func(*args, **kwargs) if kwargs else func(*args)


def unobserved(step: Step) -> None:
    """The step under a mode that does nothing: no peak."""
    with Nothing():
        step()


def followed_by_mem_tracker(step: Step, model: nn.Module, optimizer: torch.optim.Optimizer) -> int | None:
    """The peak by MemTracker, less what model and optimizer hold at the start."""
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        step()
    peak = tracker.get_tracker_snapshot("peak")
    state = [value for each in optimizer.state.values() for value in each.values() if torch.is_tensor(value)]
    held = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers(), *state))
    return next((sizes["Total"] - held for device, sizes in peak.items() if device.type == "cpu"), None)


def followed_by_profiler(step: Step) -> int:
    """The peak above the start, by the allocator's events in torch's profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    highest = now = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            highest = max(highest, now)
    return highest


def kept_by_hooks(model: nn.Module, step: Step) -> int:
    """Bytes kept for backward, each storage once, by torch's own hooks; what the model itself holds is not counted."""
    held = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step()
    return sum(seen.values())


class Sampling:
    """A probe that marks steps, and samples the next one on request, with or without measuring gradients."""

    def __init__(self, *, gradients: bool) -> None:
        self._events = EventQueue()
        self._probe = Probe(self._events.put, cpu_allocator(), ProbeOptions(CommandQueue(), budget=0.0))
        if not gradients:
            self._probe.norms.is_due = False
            self._probe.norms.begin_step = lambda *_, **__: None  # type: ignore[method-assign]

    def __enter__(self) -> Sampling:
        install(self._probe)
        return self

    def __exit__(self, *exception: object) -> None:
        self._probe.detach()

    def flush(self) -> None:
        """Replay the buffered events, so that the next step does not pay for it."""
        self._probe.report()

    def step(self, step: Step) -> None:
        """Take a step and examine it."""
        self._probe.step_sampler._cadence.force()  # noqa: SLF001 - a person asks for more than that by a toggle
        step()

    def saved_bytes(self) -> int | None:
        """Of the step that was examined last."""
        totals = [event.total for event in self._events.drain() if isinstance(event, SavedBytesMeasured)]
        return totals[-1] if totals else None


@contextlib.contextmanager
def timed(into: list[float]) -> Iterator[None]:
    """Seconds that the block took."""
    began = perf_counter()
    yield
    into.append(perf_counter() - began)


def print_row(name: str, seconds: list[float], plain: list[float], found: int | None, true: int, what: str) -> None:
    """One line: what a step costs that is followed, against one that is not, and what is found in it."""
    each = sorted(taken / alone for taken, alone in zip(seconds, plain))
    size = "" if found is None else f"  {what} {found / true:7.4f} of {true / 2**20:.2f} MiB"
    print(f"  {name:<26} {statistics.median(each):6.2f} x  ({each[0]:.2f} to {each[-1]:.2f}){size}")


def compare_peaks(model: nn.Module, optimizer: torch.optim.Optimizer, step: Step, rounds: int) -> None:
    """Each way to follow every allocation, in turns with steps of the loop alone."""
    contenders: dict[str, Callable[[], int | None]] = {
        "gradtui, step taken apart": lambda: profiled_by_gradtui(step),
        "an empty dispatch mode": lambda: unobserved(step),
        "torch MemTracker": lambda: followed_by_mem_tracker(step, model, optimizer),
        "torch profiler, memory": lambda: followed_by_profiler(step),
    }
    plain: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in contenders}
    peaks: dict[str, int | None] = {}
    for _ in range(rounds):
        with timed(plain):
            step()
        for name, follow in contenders.items():
            with timed(times[name]):
                peaks[name] = follow()
    print(f"  a step of {statistics.median(plain) * 1e3:.1f} ms ({min(plain) * 1e3:.1f} to {max(plain) * 1e3:.1f})")
    exact = peaks["torch profiler, memory"]
    for name, seconds in times.items():
        print_row(name, seconds, plain, peaks[name], exact or 0, "peak")


def compare_saved_bytes(name: str, model: nn.Module, step: Step, rounds: int, *, gradients: bool) -> None:
    """A step that is examined, and one whose saved tensors go through torch's hooks, in turns with marked ones."""
    plain: list[float] = []
    sampled: list[float] = []
    hooked: list[float] = []
    with Sampling(gradients=gradients) as probe:
        for _ in range(_WARM_UP):
            step()
        for _ in range(rounds):
            step()
            with timed(plain):
                step()
            probe.flush()
            with timed(sampled):
                probe.step(step)
            step()
            with timed(hooked):
                kept = kept_by_hooks(model, step)
        found = probe.saved_bytes()
    print_row(name, sampled, plain, found, kept, "saved")
    if gradients:
        print_row("torch saved_tensors_hooks", hooked, plain, kept, kept, "saved")


def main() -> None:
    """Print a table for each size of step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    for title, sizes in (("small", (64, 4, 8, 32)), ("middle", (128, 6, 8, 64)), ("large", (256, 8, 16, 64))):
        model, optimizer, step = transformer(*sizes)
        print(f"{title}: {len(list(model.parameters()))} parameters")
        for _ in range(3):
            step()
        compare_peaks(model, optimizer, step, rounds)
        compare_saved_bytes("gradtui, ledger alone", model, step, rounds, gradients=False)
        compare_saved_bytes("gradtui, step examined", model, step, rounds, gradients=True)


if __name__ == "__main__":
    main()
