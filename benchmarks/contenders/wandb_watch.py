"""`wandb.watch` of gradients, offline; the option is its log_freq. A log a step, as its guide has it."""

import contextlib
import os
from collections.abc import Callable, Iterator

import wandb
from torch import Tensor, nn
from torch.optim import Optimizer


@contextlib.contextmanager
def follow(
    model: nn.Module, optimizer: Optimizer, step: Callable[..., Tensor], option: str
) -> Iterator[Callable[[], object]]:
    run = wandb.init(
        mode="offline", dir=os.environ["BENCHMARK_FOLDER"], settings=wandb.Settings(console="off", silent=True)
    )
    wandb.watch(model, log="gradients", log_freq=int(option))

    def one_step() -> None:
        run.log({"loss": step().detach()})

    yield one_step
    run.finish()
