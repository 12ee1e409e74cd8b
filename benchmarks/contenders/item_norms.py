"""The loop that people write by hand: the norm of each gradient, read one by one."""

import contextlib
from collections.abc import Callable, Iterator

from torch import Tensor, nn
from torch.optim import Optimizer


@contextlib.contextmanager
def follow(
    model: nn.Module, optimizer: Optimizer, step: Callable[..., Tensor], option: str
) -> Iterator[Callable[[], object]]:
    norms = {}

    def look() -> None:
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                norms[name] = parameter.grad.norm().item()

    yield lambda: step(look)
