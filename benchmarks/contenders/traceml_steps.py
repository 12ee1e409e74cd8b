"""TraceML, started with `traceml run`: a plain loop wraps each step in `trace_step`."""

import contextlib
from collections.abc import Callable, Iterator

import traceml_ai as traceml
from torch import Tensor, nn
from torch.optim import Optimizer


@contextlib.contextmanager
def follow(
    model: nn.Module, optimizer: Optimizer, step: Callable[..., Tensor], option: str
) -> Iterator[Callable[[], object]]:
    traceml.init(mode="auto")

    def one_step() -> None:
        with traceml.trace_step(model):
            step()

    yield one_step
