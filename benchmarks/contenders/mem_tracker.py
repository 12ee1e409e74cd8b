"""torch's MemTracker, around every step."""

import contextlib
from collections.abc import Callable, Iterator

from torch import Tensor, nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.optim import Optimizer


@contextlib.contextmanager
def follow(
    model: nn.Module, optimizer: Optimizer, step: Callable[..., Tensor], option: str
) -> Iterator[Callable[[], object]]:
    tracker = MemTracker()
    tracker.track_external(model, optimizer)

    def one_step() -> None:
        with tracker:
            step()
        tracker.reset_mod_stats()

    yield one_step
