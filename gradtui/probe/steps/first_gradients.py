"""What the script does with the gradients of its first backwards, and how it makes its loss. Training thread only."""

from __future__ import annotations

import weakref
from itertools import islice
from typing import Any

import torch

from gradtui.probe.model import ModuleTree
from gradtui.probe.torch_private.private_names import version_of

_TENSORS = 4
_NODES = 32
_BRANCHES = ("AddBackward0", "SubBackward0", "SumBackward0", "StackBackward0", "NegBackward0", "ToCopyBackward0")
_FACTORS = ("DivBackward0", "MulBackward0")


class NotedGradients:
    """Some trainable parameters with the version counters that they and their gradients had at a backward."""

    def __init__(self) -> None:
        self._parameters: list[tuple[weakref.ref[torch.Tensor], int]] = []
        self._gradients: list[tuple[weakref.ref[torch.Tensor], int, int]] = []

    def before_backward(self, tree: ModuleTree) -> None:
        """Note the parameters."""
        self._parameters = [(weakref.ref(tensor), version_of(tensor)) for tensor in _first_trainable(tree)]

    def has_written(self) -> bool:
        """Return whether something has written to them since."""
        alive = [(tensor, version) for reference, version in self._parameters if (tensor := reference()) is not None]
        return any(version_of(tensor) != version for tensor, version in alive)

    def after_backward(self, tree: ModuleTree) -> None:
        """Note their gradients."""
        self._gradients = [
            (weakref.ref(tensor), id(tensor.grad), version_of(tensor.grad))
            for tensor in _first_trainable(tree)
            if tensor.grad is not None
        ]

    def is_replaced(self, clips: int) -> bool:
        """Return whether something besides `clips` clipping calls has written to the gradients, or has replaced them."""
        noted, self._gradients = self._gradients, []
        for reference, identity, version in noted:
            tensor = reference()
            gradient = tensor.grad if tensor is not None else None
            if gradient is not None and (id(gradient) != identity or version_of(gradient) - version > clips):
                return True
        return False


def is_scaled(loss: Any, *, by_scaler: bool) -> bool:
    """Return whether a loss is a sum of quotients by, or products with, a number, besides the factor of a GradScaler.

    `loss` is its `grad_fn`. torch saves no gradient function for a number, so the second of `next_functions` is None.
    """
    waiting, seen, factors = [loss], 0, 0
    while waiting and seen < _NODES:
        node = waiting.pop()
        seen += 1
        following = [each for each, _ in node.next_functions]
        is_factor = node.name() in _FACTORS and None in following
        factors += is_factor
        if is_factor or node.name() in _BRANCHES:
            waiting += [each for each in following if each is not None]
    return factors > by_scaler


def _first_trainable(tree: ModuleTree) -> list[torch.Tensor]:
    trainable = (tensor for _, tensor in tree.live_parameters() if tensor.requires_grad and not tensor.is_inference())
    return list(islice(trainable, _TENSORS))
