"""TensorBoard: a histogram of each gradient, every N steps (the option)."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.tensorboard import SummaryWriter


@contextlib.contextmanager
def follow(
    model: nn.Module, optimizer: Optimizer, step: Callable[..., Tensor], option: str
) -> Iterator[Callable[[], object]]:
    writer = SummaryWriter(os.environ["BENCHMARK_FOLDER"])
    numbers = itertools.count()
    every = int(option)

    def look() -> None:
        number = next(numbers)
        if number % every == 0:
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    writer.add_histogram(name, parameter.grad, number)

    yield lambda: step(look)
    writer.close()
