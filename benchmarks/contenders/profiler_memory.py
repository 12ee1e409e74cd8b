"""torch's profiler with memory, as a run would have it: two steps left out, one to warm up, three recorded, over and over."""

import contextlib
from collections.abc import Callable, Iterator

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.profiler import ProfilerActivity, profile, schedule


@contextlib.contextmanager
def follow(
    model: nn.Module, optimizer: Optimizer, step: Callable[..., Tensor], option: str
) -> Iterator[Callable[[], object]]:
    """The option `always` records every step in rounds of ten."""
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=9),
        profile_memory=True,
        on_trace_ready=lambda _: None,
    ) as profiler:

        def one_step() -> None:
            step()
            profiler.step()

        yield one_step
