"""torch-audit without edits to the loop; the option is how often it looks (its default is every 1,000 steps)."""

import contextlib
from collections.abc import Callable, Iterator

import torch_audit
from torch import Tensor, nn
from torch.optim import Optimizer


@contextlib.contextmanager
def follow(
    model: nn.Module, optimizer: Optimizer, step: Callable[..., Tensor], option: str
) -> Iterator[Callable[[], object]]:
    with torch_audit.autopatch(model, optimizer=optimizer, every_n_steps=int(option), reporters=[]):
        yield step
