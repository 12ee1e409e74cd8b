"""Count the bytes of tensors, each storage once. Training thread."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from itertools import chain
from operator import attrgetter
from typing import Any

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.model.module_tree import ModuleTree
from gradtui.probe.torch_private.unwrap import PLAIN, plain_tensors

_STRIDED = torch.strided
_is_cpu, _key_of = attrgetter("is_cpu"), attrgetter("_cdata")
"""`_key_of` returns the key of a storage, as `storage_key` does."""
_storage_of, _bytes_of = torch.Tensor.untyped_storage, torch.UntypedStorage.nbytes


@dataclass
class StorageCount:
    """Counts the bytes of distinct storages on one type of device."""

    device_type: str
    seen: set[int] = field(default_factory=set)
    indexes: Container[int | None] | None = None
    """The indexes of the devices of that type that count; None for any."""
    _is_here: dict[torch.device, bool] = field(default_factory=dict)

    def add(self, tensors: Iterable[torch.Tensor]) -> int:
        """Return the bytes of the storages of these tensors that were not counted before."""
        tensors = tensors if isinstance(tensors, list) else list(tensors)
        sizes = self._sizes_of_plain(tensors)
        if sizes is None:
            return self._add_each(tensors)
        total = sum(map(sizes.__getitem__, sizes.keys() - self.seen))
        self.seen.update(sizes)
        return total

    def _sizes_of_plain(self, tensors: list[torch.Tensor]) -> dict[int, int] | None:
        """Return key -> bytes of the storages of plain CPU tensors; None if another kind of tensor is among them.

        It makes no Python call for each tensor, since it processes every parameter and gradient at the end of every phase.
        """
        if self.device_type != "cpu" or not PLAIN.issuperset(map(type, tensors)) or not all(map(_is_cpu, tensors)):
            return None
        try:
            storages = [*map(_storage_of, tensors)]
        except (NotImplementedError, RuntimeError):  # a sparse tensor has none
            return None
        return dict(zip(map(_key_of, storages), map(_bytes_of, storages)))

    def _add_each(self, tensors: Iterable[torch.Tensor]) -> int:
        total, seen, is_here = 0, self.seen, self._is_here
        for tensor in tensors:
            is_plain = type(tensor) in PLAIN and tensor.layout is _STRIDED
            for plain in (tensor,) if is_plain else plain_tensors(tensor):
                # The device is read first, since tensors of some devices have no storage.
                device = plain.device
                here = is_here.get(device)
                if here is None:
                    here = self._counts(device)
                if here:
                    storage = plain.untyped_storage()
                    key = storage._cdata  # noqa: SLF001 - as `storage_key`, without asking the tensor twice
                    if key not in seen:
                        seen.add(key)
                        total += storage.nbytes()
        return total

    def _counts(self, device: torch.device) -> bool:
        is_listed = self.indexes is None or device.index in self.indexes
        here = self._is_here[device] = device.type == self.device_type and is_listed
        return here

    def storages(self, storages: Iterable[Any]) -> dict[int, int]:
        """Return key -> bytes of those of these storages that were not counted before. Does not mark them as counted.

        CPU storages that processes share (batches of a DataLoader's workers) are left out: no allocator's total has them.
        """
        return {
            storage._cdata: storage.nbytes()  # noqa: SLF001 - as `storage_key`
            for storage in storages
            if self._counts(storage.device)
            and storage._cdata not in self.seen  # noqa: SLF001
            and not (self.device_type == "cpu" and storage.is_shared())
        }


def buffers_of(tree: ModuleTree) -> list[tuple[int, torch.Tensor]]:
    """Return (index of its module, buffer) of every buffer."""
    return [
        (index, buffer)
        for index, reference in enumerate(tree.module_refs)
        if (module := reference()) is not None and module._buffers  # noqa: SLF001 - `buffers()` walks the whole subtree again
        for buffer in module._buffers.values()  # noqa: SLF001
        if buffer is not None
    ]


def state_tensors(*states: object) -> list[torch.Tensor]:
    """Return the tensors in optimizers' states at any depth: the state of all parameters of an optimizer, or of one.

    It goes through them level by level, without a Python call for each of thousands of tensors.
    """
    found: list[torch.Tensor] = []
    level: list[object] = [*states]
    while level:
        kinds = set(map(type, level))
        found += _of_kind(torch.Tensor, level, kinds)
        mappings = [value.values() for value in _of_kind(dict, level, kinds)]
        sequences = [*_of_kind(list, level, kinds), *_of_kind(tuple, level, kinds)]
        level = [*chain.from_iterable(mappings), *chain.from_iterable(sequences)]
    return found


def _of_kind(wanted: type, values: list[Any], kinds: set[type]) -> list[Any]:
    """Return those of the values that are instances of a class. They are all of these kinds."""
    are = {issubclass(kind, wanted) for kind in kinds}
    # Mostly all values are of one kind: the entries of all parameters, or the tensors in them.
    return values if are == {True} else [value for value in values if isinstance(value, wanted)] if True in are else []


def direct_tensors(entries: object) -> dict[str, torch.Tensor]:
    """Return the tensors that are entries of one parameter's state, by name: those that can be moved to another device."""
    if not isinstance(entries, dict):
        return {}
    return {
        name: value
        for name, value in entries.items()
        if isinstance(value, torch.Tensor) and value.layout is torch.strided
    }


def bucket_bytes(tree: ModuleTree) -> tuple[int, ...]:
    """Return for each model the bytes of the buckets in which DistributedDataParallel holds a second copy of its gradients.

    0 where the gradients are views of the buckets. The buckets belong to a reducer in C++, and no tensor in Python leads to
    their storage. Only a private method of the wrapper reports their sizes, and only this function uses it:
    `_get_ddp_logging_data` returns `bucket_sizes` in bytes, `rebuilt_bucket_sizes` once the first backward has reordered the
    buckets, and `gradient_as_bucket_view`. Where it is missing the sizes count as 0.
    """
    sizes = [0] * len(tree.models)
    numbers = {model.root: number for number, model in enumerate(tree.models)}
    for index, module in tree.live_modules():
        account = getattr(type(module), "_get_ddp_logging_data", None)
        if account is not None:
            # If this private method fails, the other measurements of the step must continue.
            with suppress(Exception):
                sizes[numbers[tree.roots[index]]] += _copied(account(module))
    return tuple(sizes)


def _copied(account: Mapping[str, Any]) -> int:
    if account.get("gradient_as_bucket_view"):
        return 0
    listed = account.get("rebuilt_bucket_sizes") or account.get("bucket_sizes") or ""
    return sum(int(size) for size in str(listed).split(",") if size.strip())
