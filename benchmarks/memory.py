"""What one step costs while its memory is followed, and what peak each way says: ours, torch's MemTracker, its profiler.

    python benchmarks/memory.py --rounds 7

All in one process, taking turns with steps that nobody follows; medians, the spread of single rounds, and ratios to those
steps; and each peak above the start of the step as a ratio to the profiler's, which sees every event of the allocator (of
MemTracker's, what the model and the optimizer hold at the start is taken off). MemTracker is made anew for each step, as its
second one would raise. The profiler's parsing is part of its cost.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from gradtui.probe.allocation_trace import AllocationTrace
from gradtui.probe.operation_mode import OperationMode

Step = Callable[[], None]


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


def followed_by_us(step: Step) -> int:
    """The peak above the start, by our trace."""
    with AllocationTrace("cpu", 0, lambda: -1) as trace:
        step()
    trace.close()
    return max(trace.curve)


class Nothing(OperationMode):
    """Is shown each operation and does nothing: what no follower in Python can be cheaper than."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation."""
        return func(*args, **kwargs) if kwargs else func(*args)


def followed_by_nobody(step: Step) -> None:
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


@contextlib.contextmanager
def timed(into: list[float]) -> Iterator[None]:
    """Seconds that the block took."""
    began = perf_counter()
    yield
    into.append(perf_counter() - began)


def main() -> None:
    """Print a table for each size of step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    for title, sizes in (("small", (64, 4, 8, 32)), ("middle", (128, 6, 8, 64)), ("large", (256, 8, 16, 64))):
        model, optimizer, step = transformer(*sizes)
        contenders: dict[str, Callable[[], int | None]] = {
            "gradtui, a step apart": lambda step=step: followed_by_us(step),  # type: ignore[misc]
            "an empty dispatch mode": lambda step=step: followed_by_nobody(step),  # type: ignore[misc]
            "torch MemTracker": lambda step=step, model=model, optimizer=optimizer: followed_by_mem_tracker(  # type: ignore[misc]
                step, model, optimizer
            ),
            "torch profiler, memory": lambda step=step: followed_by_profiler(step),  # type: ignore[misc]
        }
        for _ in range(3):
            step()
        plain: list[float] = []
        times: dict[str, list[float]] = {name: [] for name in contenders}
        peaks: dict[str, int | None] = {}
        for _ in range(rounds):
            with timed(plain):
                step()
            for name, follow in contenders.items():
                with timed(times[name]):
                    peaks[name] = follow()
        base = statistics.median(plain)
        print(f"{title}: a step of {base * 1e3:.1f} ms (as it is; {min(plain) * 1e3:.1f} to {max(plain) * 1e3:.1f})")
        for name, seconds in times.items():
            each = sorted(taken / alone for taken, alone in zip(seconds, plain))
            peak, exact = peaks[name], peaks["torch profiler, memory"]
            size = (
                "-" if peak is None or not exact else f"{peak / exact:7.4f} of the profiler's {exact / 2**20:.2f} MiB"
            )
            print(
                f"  {name:<24} {statistics.median(seconds) / base:6.2f} x  ({each[0]:.2f} to {each[-1]:.2f})  peak {size}"
            )


if __name__ == "__main__":
    main()
