"""Find every storage and its owner, only when memory has run out. Any thread; nothing is kept.

Parameters, buffers, gradients and optimizer state are known by name. What autograd saved is found through the graph behind
every tensor that Python's collector knows: when a forward fails, these are the local variables of its frames. All other
tensors that the collector knows are listed without an owner. Tensors that only C++ holds are not found, so they are part of
*other*.
"""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from dataclasses import field
from time import perf_counter

import torch
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.autograd import ModuleCallLog, SavedOwners
from gradtui.probe.model import ModuleTree, buffers_of, optimizer_membership, state_tensors
from gradtui.probe.torch_private.private_names import gradient_of, is_being_traced, is_wrapper, storage_key
from gradtui.probe.torch_private.unwrap import plain_tensors
from gradtui.protocol.vocabulary import HeldStorage

_SECONDS = 1.0
"""The search takes at most this long, not counting the list of objects that the collector knows (some 20 ms for a million)."""

_LISTED = 20
_UNKNOWN = "not known"
_OBJECTS, _NODES = 1_000, 100
"""Numbers of objects and of nodes between two checks of the time limit."""


@dataclass
class Owners:
    """The storages found, each once, under the first owner that claims it."""

    categories: tuple[tuple[str, int], ...]
    largest: tuple[HeldStorage, ...]
    whole: bool


@dataclass
class _Search:
    device: torch.device
    deadline: float
    seen: set[int] = field(default_factory=set)
    bytes: Counter[str] = field(default_factory=Counter)
    held: Counter[tuple[str, str, int, tuple[int, ...], str]] = field(default_factory=Counter)
    whole: bool = True

    def claim(self, tensor: torch.Tensor, owner: str, category: str) -> None:
        """Assign the storages of this tensor to this owner, unless they already have one."""
        for plain in plain_tensors(tensor):
            if not self._is_here(plain.device) or is_wrapper(plain):
                continue
            key = storage_key(plain)
            if key in self.seen:
                continue
            self.seen.add(key)
            size = plain.untyped_storage().nbytes()
            self.bytes[category] += size
            dtype = str(plain.dtype).removeprefix("torch.")
            self.held[owner, category, size, tuple(plain.shape), dtype] += 1

    def _is_here(self, device: torch.device) -> bool:
        same_kind = device.type == self.device.type
        return same_kind and (device.index is None or self.device.index in (None, device.index))

    def is_late(self) -> bool:
        if perf_counter() > self.deadline:
            self.whole = False
        return not self.whole


def find(
    tree: ModuleTree,
    optimizers: list[Optimizer],
    trace: ModuleCallLog | None,
    device: torch.device,
    *,
    seconds: float = _SECONDS,
) -> Owners:
    """Find everything that is held on a device, or on all devices of its type if it has no index.

    `trace` maps operations to modules, if module calls were logged.
    """
    search = _Search(device, perf_counter() + seconds)
    if not is_being_traced():
        _named(search, tree, optimizers)
        tensors = _tensors(search)
        _saved(search, SavedOwners(tree, trace), tensors)
        for tensor in tensors:
            with contextlib.suppress(Exception):  # functorch's wrappers have no storage
                search.claim(tensor, _UNKNOWN, "other")
    names = ("parameters", "buffers", "gradients", "optimizer_state", "activations")
    return Owners(tuple((name, search.bytes[name]) for name in names), _largest(search), search.whole)


def _named(search: _Search, tree: ModuleTree, optimizers: list[Optimizer]) -> None:
    paths = {id(tensor): tree.parameters[index].path for index, tensor in tree.live_parameters()}
    owned = [(optimizer, tensor) for optimizer in optimizers for tensor in optimizer_membership.parameters(optimizer)]
    for optimizer, tensor in owned:
        paths.setdefault(id(tensor), f"a parameter of {type(optimizer).__name__}")
    parameters = [tensor for _, tensor in tree.live_parameters()] + [tensor for _, tensor in owned]
    for tensor in parameters:
        search.claim(tensor, paths[id(tensor)], "parameters")
    for index, buffer in buffers_of(tree):
        path, module = tree.modules[index].path, tree.module_refs[index]()
        name = next((name for name, held in module._buffers.items() if held is buffer), "") if module else ""  # noqa: SLF001
        search.claim(buffer, f"{path}.{name}" if path else name, "buffers")
    for tensor in parameters:
        if (gradient := gradient_of(tensor)) is not None:
            search.claim(gradient, f"gradient of {paths[id(tensor)]}", "gradients")
    for optimizer in optimizers:
        for key, state in optimizer.state.items():
            for name, value in state.items() if isinstance(state, dict) else (("", state),):
                for tensor in state_tensors(value):
                    search.claim(
                        tensor, f"optimizer state of {paths.get(id(key), _UNKNOWN)} ({name})", "optimizer_state"
                    )


class TensorTypes(dict[type, bool]):
    """Caches which types are tensors. It checks the type, because a proxy of the script's might answer by running code."""

    def __missing__(self, kind: type) -> bool:
        is_tensor = self[kind] = issubclass(kind, torch.Tensor)
        return is_tensor


def _tensors(search: _Search) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    kinds = TensorTypes()
    try:
        objects = gc.get_objects()
    except MemoryError:
        # No memory even for a list.
        search.whole = False
        return found
    for begin in range(0, len(objects), _OBJECTS):
        if search.is_late():
            break
        found += [each for each in objects[begin : begin + _OBJECTS] if kinds[type(each)]]
    return found


def _saved(search: _Search, owners: SavedOwners, tensors: list[torch.Tensor]) -> None:
    for count, node in enumerate(owners.nodes_of(tensors), start=1):
        for saved, owner in owners.saved_by(node):
            with contextlib.suppress(Exception):
                search.claim(saved, owner, "activations")
        if count % _NODES == 0 and search.is_late():
            return


def _largest(search: _Search) -> tuple[HeldStorage, ...]:
    rows = [HeldStorage(*storage, count) for storage, count in search.held.items()]
    largest = sorted(rows, key=lambda row: row.bytes * row.count, reverse=True)[:_LISTED]
    return tuple(row for row in largest if row.bytes)
