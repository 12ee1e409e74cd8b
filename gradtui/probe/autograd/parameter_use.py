"""Which parameters the operations of a forward read, and whether a gradient goes on through these operations.

A frozen parameter leaves no trace in autograd's graph where its operation saves nothing of it, as an addition. The operations
themselves show it. Training thread only.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from gradtui.probe.model import ModuleTree
from gradtui.probe.torch_private.private_names import is_lazy


class ParameterUse:
    """Receives each operation of the forwards of one step."""

    def __init__(self, tree: ModuleTree) -> None:
        self.listing = tree.listing
        self.is_whole = False
        """Whether the operations of a forward were received, all of them."""
        self._failed = False
        self._indices = {id(tensor): index for index, tensor in tree.live_parameters() if not is_lazy(tensor)}
        self._passes: dict[int, bool | None] = {}
        """By parameter that was read: whether a gradient goes on through an operation that reads it; None where one read it
        without recording, as a reentrant checkpoint does at first."""
        self._made_of: dict[int, tuple[weakref.ref[torch.Tensor], frozenset[int]]] = {}
        """By `id()` of a tensor that is made of frozen parameters alone, such as a transposed weight: these parameters."""

    def add(self, arguments: Iterable[Any], keywords: dict[str, Any], result: Any) -> None:
        """Record an operation that has run."""
        own: set[int] = set()
        carries, only_own = False, True
        for tensor in _tensors((*arguments, *keywords.values())):
            read = self._read(tensor)
            own |= read
            only_own &= bool(read)
            carries |= tensor.requires_grad
        self.is_whole = not self._failed
        if not own:
            return
        records = torch.is_grad_enabled()
        for index in own:
            if records and carries:
                self._passes[index] = True
            elif not records and not self._passes.get(index, False):
                self._passes[index] = None
            else:
                self._passes.setdefault(index, False)
        if only_own and not carries:
            for made in _tensors((result,)):
                self._made_of[id(made)] = weakref.ref(made), frozenset(own)

    def give_up(self) -> None:
        """Record that an operation was not received."""
        self._failed, self.is_whole = True, False

    def passes(self, parameter: int) -> bool | None:
        """Return whether a gradient passes the operations that read a frozen parameter; None if that is not known."""
        return self._passes.get(parameter, False)

    def is_read(self, parameter: int) -> bool:
        """Return whether an operation read a parameter."""
        return parameter in self._passes

    def _read(self, tensor: torch.Tensor) -> frozenset[int]:
        if tensor.requires_grad:
            return frozenset()
        index = self._indices.get(id(tensor))
        if index is not None:
            return frozenset((index,))
        known = self._made_of.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else frozenset()


class NewestUse:
    """The newest recorded use of the parameters. It holds as long as the same parameters are frozen."""

    def __init__(self) -> None:
        self._use: ParameterUse | None = None
        self._frozen: frozenset[int] = frozenset()

    def with_frozen(self, frozen: frozenset[int], listing: int, recorded: ParameterUse | None) -> ParameterUse | None:
        """Return the use with these frozen parameters of a listing; None if it is not known.

        `recorded` is that of the current step, if its operations were recorded.
        """
        if recorded is not None:
            self._use, self._frozen = recorded, frozen
        return self._use if self._use is not None and (self._frozen, self._use.listing) == (frozen, listing) else None


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)
