"""Find a loaded checkpoint that is alive although the model has copied its values. Training thread.

The search starts from the tensors known to Python's collector. It runs only if the bytes that no category explains leave room
for another copy of the parameters, at most three times in a run. What `torch.load` reads on the CPU differs from copies that a
script makes, such as snapshots, averages of weights and gradients: its storage cannot be resized, and nothing has been written
to it since. Results are held by weak references.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from collections import Counter, OrderedDict
from collections.abc import Container

import torch
from torch import nn

from gradtui.probe.kept_states import is_copy
from gradtui.probe.model import ModuleTree, state_tensors
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import storage_key, version_of
from gradtui.protocol.events import CheckpointAlive
from gradtui.system.no_collection import no_collection

_MIN_BYTES = 1 << 20
_SHARE = 0.6
"""Share of the bytes of the parameters that must have a counterpart."""
_FIRST, _SEARCHES = 2, 3
"""The first sampled step in which a search may run, since the very first has enough to do, and the number of searches."""
_LOADED = 1
"""The version counter of a tensor that `torch.load` has made. Each write in place raises it."""
_DEPTH, _ENTRIES = 4, 10_000
"""How deep containers are searched for the tensors, and the number of their entries."""

_Shape = tuple[torch.Size, torch.dtype]


class LoadedCheckpoint:
    """Searches for the tensors of a loaded checkpoint, and reports how many of them are alive."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock, self._models = context.emit, context.clock, context.models
        self._counter = context.counter
        self._samples = self._searches = 0
        self._searched_at = 0
        """Bytes in no category at the last search."""
        self._found: list[weakref.ref[torch.Tensor]] = []
        self._reported = 0

    def on_step_post(self, other: int | None) -> None:
        """Search when the optimizer's step of a sampled step has ended. `other` is the number of bytes in no category."""
        self._samples += 1
        if self._found:
            self._report()
        elif self._samples >= _FIRST:
            self._search(other)

    def finish(self, other: int | None) -> None:
        """Search at the end of a run in which too few steps were sampled."""
        if not self._searches:
            self._search(other)

    def _search(self, other: int | None) -> None:
        tree = self._models.tree
        size = sum(parameter.bytes for parameter in tree.parameters)
        if other is None or size < _MIN_BYTES or self._searches >= _SEARCHES:
            return
        if other - self._searched_at >= _SHARE * size:
            self._searches, self._searched_at = self._searches + 1, other
            found = _loaded(tree, {*_own_storages(tree), *self._optimizer_storages()})
            self._found = [weakref.ref(each) for each in found]
            self._report()

    def _report(self) -> None:
        alive = [each for reference in self._found if (each := reference()) is not None and _is_loaded(each)]
        if len(alive) != self._reported:
            self._reported = len(alive)
            size, holder = sum(each.nbytes for each in alive), _holder({*map(id, alive)})
            self._emit(CheckpointAlive(self._clock.at(), self._counter.steps, len(alive), size, holder))
        if not alive:
            self._found = []

    def _optimizer_storages(self) -> set[int]:
        states = (state_tensors(optimizer.state) for optimizer in self._models.live_optimizers())
        return {storage_key(each) for state in states for each in state if type(each) is torch.Tensor}


def _own_storages(tree: ModuleTree) -> set[int]:
    return {storage_key(each) for _, each in tree.live_parameters() if type(each) is nn.Parameter}


def _loaded(tree: ModuleTree, own: Container[int]) -> list[torch.Tensor]:
    """Return the loaded tensors with shapes of parameters; none if they do not cover most of the parameters."""
    wanted: Counter[_Shape] = Counter((each.shape, each.dtype) for _, each in tree.live_parameters())
    with no_collection():
        found = [each for each in gc.get_objects() if type(each) is torch.Tensor and _is_loaded(each)]
        found = [each for each in found if (each.shape, each.dtype) in wanted and storage_key(each) not in own]
    covered = wanted & Counter((each.shape, each.dtype) for each in found)
    return found if len(found) > 1 and _bytes(covered) >= _SHARE * _bytes(wanted) else []


def _is_loaded(tensor: torch.Tensor) -> bool:
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.requires_grad:
        return False
    # functorch's wrappers have no storage.
    with contextlib.suppress(Exception):
        written = tensor.is_inference() or version_of(tensor) > _LOADED
        return not written and not tensor.untyped_storage().resizable() and not is_copy(tensor)
    return False


def _bytes(shapes: Counter[_Shape]) -> int:
    return sum(shape.numel() * dtype.itemsize * count for (shape, dtype), count in shapes.items())


def _holder(ids: Container[int]) -> str | None:
    """Return the name of the global variable of the script whose containers have one of these tensors."""
    left = _ENTRIES
    for name, value in [*vars(sys.modules["__main__"]).items()]:
        level = [value]
        for _ in range(_DEPTH):
            level = [each for each in level if type(each) in _CONTAINERS]
            level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
            left -= len(level)
            if left < 0:
                return None
            if any(id(item) in ids for item in level):
                return name
    return None


_CONTAINERS = frozenset({dict, list, tuple, OrderedDict})
