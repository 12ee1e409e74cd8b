"""Which frozen parameters the operations of a forward read, and whether a gradient passes through these operations.

A frozen parameter leaves no trace in autograd's graph where its operation saves nothing of it, as an addition. The operations
themselves show it. Training thread only.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from gradtui.probe.autograd.module_call_log import ModuleCallLog
from gradtui.probe.model import ModuleTree
from gradtui.probe.torch_private.private_names import is_lazy, overlap, span_of, storage_key
from gradtui.probe.torch_private.unwrap import plain_tensors


class ParameterUse:
    """Receives each operation within the module calls of one step.

    Args:
        tree: the models.
        calls: the module calls of the step.
    """

    def __init__(self, tree: ModuleTree, calls: ModuleCallLog) -> None:
        self.listing = tree.listing
        self.is_whole = False
        """Whether operations were received, and none was missed."""
        self._failed = False
        self._calls = calls
        self._owners, self._roots = tree.owners, tree.roots
        self._by_storage: dict[int, list[tuple[int, range]]] = {}
        for index, tensor in tree.live_parameters():
            for plain in plain_tensors(tensor) if not (tensor.requires_grad or is_lazy(tensor)) else ():
                self._by_storage.setdefault(storage_key(plain), []).append((index, span_of(plain)))
        self._passes: dict[int, bool | None] = {}
        """What `passes` returns, of the parameters that were read."""
        self._made: dict[int, tuple[weakref.ref[torch.Tensor], dict[int, bool], int]] = {}
        """By `id()` of a tensor: the frozen parameters that it was computed from, whether from such alone, and the module whose
        code did it. What the code of another module computes from it is no longer followed."""
        self._called: frozenset[int] = frozenset()

    def add(self, arguments: Iterable[Any], keywords: dict[str, Any], result: Any) -> None:
        """Record an operation that has run."""
        self.is_whole = not self._failed
        module = self._calls.now
        read: dict[int, bool] = {}
        carries = has_others = False
        for tensor in _tensors((*arguments, *keywords.values())):
            if tensor.requires_grad:
                carries = True
                continue
            found = self._read(tensor, module)
            has_others |= not found
            for index, is_pure in found.items():
                read[index] = read.get(index, True) and is_pure
        if not read:
            return
        records = torch.is_grad_enabled()
        for index, is_pure in read.items():
            known = self._passes.get(index, False)
            if records and carries and is_pure:
                self._passes[index] = True
            elif known is not True and (carries or not records):
                self._passes[index] = None
            else:
                self._passes[index] = known
        if not carries:
            made_of = {index: is_pure and not has_others for index, is_pure in read.items()}
            for made in _tensors((result,)):
                self._made[id(made)] = weakref.ref(made), made_of, module

    def give_up(self) -> None:
        """Record that an operation was not received."""
        self._failed, self.is_whole = True, False

    def close(self) -> None:
        """Keep only what the other methods return."""
        self._called = frozenset(self._calls.grad_modes)
        self._calls = ModuleCallLog()
        self._by_storage, self._made = {}, {}

    def passes(self, parameter: int) -> bool | None:
        """Return whether an operation that reads a frozen parameter also takes a tensor that requires a gradient.

        None if that cannot be told: an operation read the parameter without recording, as a reentrant checkpoint does at first,
        or it takes such a tensor together with one that was computed from the parameter and from others.
        """
        return self._passes.get(parameter, False)

    def is_read(self, parameter: int) -> bool:
        """Return whether an operation read a parameter."""
        return parameter in self._passes

    def ran_any(self, modules: Iterable[int]) -> bool:
        """Return whether the step called one of these modules: operations between calls are not received."""
        return not self._called.isdisjoint(modules)

    def _read(self, tensor: torch.Tensor, module: int) -> dict[int, bool]:
        known = self._made.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1] if known[2] == module else {}
        return {index: True for plain in plain_tensors(tensor) for index in self._frozen_over(plain, module)}

    def _frozen_over(self, tensor: torch.Tensor, module: int) -> list[int]:
        """Return the frozen parameters over the memory of a tensor. A model reads its own, whatever they share with others."""
        parts = self._by_storage.get(storage_key(tensor), ())
        if len(parts) <= 1:
            return [index for index, _ in parts]
        span = span_of(tensor)
        found = [index for index, each in parts if overlap(each, span)]
        root = self._roots[module] if module >= 0 else module
        return [index for index in found if self._roots[self._owners[index]] == root] or found


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
            recorded.close()
            self._use, self._frozen = recorded, frozen
        return self._use if self._use is not None and (self._frozen, self._use.listing) == (frozen, listing) else None


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)
