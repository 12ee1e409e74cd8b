"""torchmortem; the option is its sampling preset."""

import contextlib
from collections.abc import Callable, Iterator

from torch import Tensor, nn
from torch.optim import Optimizer
from torchmortem import Autopsy


@contextlib.contextmanager
def follow(
    model: nn.Module, optimizer: Optimizer, step: Callable[..., Tensor], option: str
) -> Iterator[Callable[[], object]]:
    autopsy = Autopsy(model, optimizer=optimizer, sampling=option)
    autopsy.attach()

    def one_step() -> None:
        loss = step()
        autopsy.step(loss=loss.item())

    yield one_step
    # No `detach`: the analysis of the whole run is no part of a step.
