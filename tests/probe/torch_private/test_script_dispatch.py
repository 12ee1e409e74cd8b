"""Tensors of a class of the script with its own `__torch_dispatch__`, which may print: no operation of gradtui calls it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.watched import watched
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

from gradtui.probe.torch_private.private_names import has_values

calls: Counter[str] = Counter()


class Logging(torch.Tensor):
    """Counts each operation on a tensor that it wraps."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Logging:
        made: Logging = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, requires_grad=inner.requires_grad
        )
        made.held = inner.detach()
        return made

    def __repr__(self, **_options: Any) -> str:  # type: ignore[override]
        return "Logging()"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        calls[str(func)] += 1
        args_inside, kwargs_inside = tree_map(lambda each: getattr(each, "held", each), (args, kwargs or {}))
        result = func(*args_inside, **kwargs_inside)
        if func._schema.is_mutable:
            return args[0]
        return tree_map(lambda each: cls(each) if isinstance(each, torch.Tensor) else each, result)


def with_weights(model: nn.Module) -> nn.Module:
    for module in model.modules():
        for name, parameter in [*module.named_parameters(recurse=False)]:
            setattr(module, name, nn.Parameter(Logging(parameter.detach()), requires_grad=name != "bias"))
    return model


def train(make: Callable[[nn.Module], nn.Module], wrap: Callable[[torch.Tensor], torch.Tensor]) -> Counter[str]:
    torch.manual_seed(0)
    model = make(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.01, momentum=0.9)
    loader = DataLoader(list(torch.linspace(-1, 1, 64).view(16, 4)), batch_size=2)
    calls.clear()
    for epoch in range(4):
        model.train()
        for batch in loader:
            optimizer.zero_grad()
            model(wrap(batch)).square().mean().backward()
            if epoch:
                nn.utils.clip_grad_norm_(trained, 0.1)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(wrap(batch))
        model.load_state_dict(model.state_dict())
        optimizer.load_state_dict(optimizer.state_dict())
    return Counter(calls)


@pytest.mark.parametrize("budget", [1e6, 0.01])
@pytest.mark.parametrize(
    ("make", "wrap"),
    [(with_weights, Logging), (with_weights, lambda batch: batch), (lambda model: model, Logging)],
    ids=["all", "weights", "inputs"],
)
def test_watched_run_calls_it_no_more_often(
    make: Callable[[nn.Module], nn.Module], wrap: Callable[[torch.Tensor], torch.Tensor], budget: float
) -> None:
    alone = train(make, wrap)
    assert alone
    with watched(budget=budget):
        assert train(make, wrap) == alone


def test_classes_of_torch_are_read() -> None:
    assert has_values(torch.ones(1))
    assert has_values(nn.Parameter(torch.ones(1)))
    assert not has_values(Logging(torch.ones(1)))
    assert not has_values(torch.ones(1, device="meta"))
