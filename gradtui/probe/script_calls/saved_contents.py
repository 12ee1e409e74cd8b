"""Recognize the states of a training in an object that the script saves or has loaded, and compute a digest of the object.

The digest is of the structure, of plain values, and of a few elements of some tensors. `torch.save` and `torch.load` keep all
of these, on whatever device the tensors are loaded. Nothing is unpickled here. Runs on the training thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from gradtui.probe.script_calls.other_generators import GeneratorState, found_in
from gradtui.probe.torch_private.cuda import is_capturing
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.unwrap import PLAIN

_DEPTH = 6
_MAX_VALUES = 20_000
"""Values of one object that are visited, at most."""
_MAX_TEXT = 200
_TENSORS, _ELEMENTS = 32, 5
"""Tensors of one object whose elements are read, and elements of each of them, at most."""
_WEIGHTS, _OF_EACH = 2_048, 16
"""The same for the checksum of the weights. With few tensors it could be one of frozen ones alone."""
_OF_ROOT = frozenset({"weight", "bias"})
"""Names of parameters without that of a module."""
_OF_SCHEDULERS = frozenset({"_step_count", "base_lrs", "_last_lr", "num_bad_epochs"})


class Contents(NamedTuple):
    """What was recognized."""

    digest: str
    optimizers: list[Mapping[str, Any]]
    schedulers: list[Mapping[str, Any]]
    random: list[torch.Tensor]
    """States of torch's random generator for the CPU."""
    generators: list[GeneratorState]
    """States of other random generators."""
    has_modules: bool
    """A mapping of names to tensors is in it."""

    @property
    def is_of_training(self) -> bool:
        """Whether any of these is in it."""
        return bool(self.optimizers or self.schedulers or self.random or self.generators or self.has_modules)


class _Walk:
    def __init__(self, *, is_sorted: bool = False) -> None:
        self._is_sorted = is_sorted
        self.hash = hashlib.sha256()
        self.tensors: list[torch.Tensor] = []
        self.found = Contents("", [], [], [], [], False)
        self.has_modules = False
        self._left = _MAX_VALUES

    def visit(self, value: Any, depth: int = 0, *, is_within: bool = False) -> None:
        """Visit a value. `is_within`: it is a part of what was recognized."""
        self._left -= 1
        if self._left < 0:
            return
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            self._note(f"T{tuple(value.shape)}{value.dtype}")
            if not is_within and _is_random_state(value):
                self.found.random.append(value)
        elif value is None or type(value) in (bool, int, float, str):
            self._note(repr(value)[:_MAX_TEXT])
        elif depth < _DEPTH and (isinstance(value, dict) or type(value) in (list, tuple)):
            self._visit_items(value, depth, is_within=is_within)
        else:
            self._note(type(value).__name__)

    def _visit_items(self, value: Any, depth: int, *, is_within: bool) -> None:
        is_mapping = isinstance(value, dict)
        is_within = is_within or (is_mapping and self._recognize(value))
        self._note(f"{'M' if is_mapping else 'L'}{len(value)}")
        pairs = dict.items(value) if is_mapping else enumerate(value)
        for key, each in sorted(pairs, key=_text_of_key) if is_mapping and self._is_sorted else pairs:
            if self._left < 0:
                return
            self._note(repr(key)[:_MAX_TEXT] if type(key) in (int, str) else type(key).__name__)
            if not is_within:
                self.found.generators.extend(found_in(key, each))
            self.visit(each, depth + 1, is_within=is_within)

    def _note(self, text: str) -> None:
        self.hash.update(text.encode("utf-8", "backslashreplace") + b";")

    def _recognize(self, value: dict[Any, Any]) -> bool:
        if groups_of(value) is not None:
            self.found.optimizers.append(value)
        elif type(value.get("last_epoch")) is int and not _OF_SCHEDULERS.isdisjoint(value):
            self.found.schedulers.append(value)
        elif _is_module_state(value):
            self.has_modules = True
        else:
            return False
        return True


def _text_of_key(pair: tuple[Any, Any]) -> str:
    return str(pair[0]) if type(pair[0]) in (int, str) else ""


def contents_of(value: Any, *, is_sorted: bool = False) -> Contents:
    """Return what an object has, and its digest. At most 32 tensors of it are read, five elements of each.

    With `is_sorted` the digest does not depend on the order of the keys of dictionaries.
    """
    walk = _Walk(is_sorted=is_sorted)
    walk.visit(value)
    every = max(1, -(-len(walk.tensors) // _TENSORS))
    walk.hash.update(repr(values_of(walk.tensors[::every], _ELEMENTS)).encode())
    return walk.found._replace(digest=walk.hash.hexdigest()[:32], has_modules=walk.has_modules)


def optimizer_digest(state: Mapping[str, Any]) -> str:
    """Return the digest of an optimizer's state, without the settings of its groups: scripts change those."""
    members = [group["params"] for group in groups_of(state) or ()]
    return contents_of([members, state.get("state")]).digest


def groups_of(state: Any) -> list[Mapping[str, Any]] | None:
    """Return the groups of an optimizer's state; None if it is none."""
    if not isinstance(state, Mapping) or not isinstance(state.get("state"), Mapping):
        return None
    groups = state.get("param_groups")
    if not isinstance(groups, list) or not groups:
        return None
    are_groups = all(isinstance(each, Mapping) and isinstance(each.get("params"), list) for each in groups)
    return groups if are_groups else None


def module_states(value: Mapping[Any, Any]) -> list[Mapping[str, Any]]:
    """Return the states of modules that an object is or has as its values."""
    return [each for each in (value, *value.values()) if isinstance(each, dict) and _is_module_state(each)]


def checksum_of(tensors: Sequence[torch.Tensor]) -> str:
    """Return a checksum of 16 elements of each of at most 2,048 tensors, spread evenly; empty for none."""
    if not tensors:
        return ""
    every = -(-len(tensors) // _WEIGHTS)
    shapes = [tuple(each.shape) for each in tensors]
    return hashlib.sha256(repr((shapes, values_of(tensors[::every], _OF_EACH))).encode()).hexdigest()[:32]


def values_of(tensors: Iterable[torch.Tensor], count: int) -> list[list[float] | None]:
    """Return at most `count` elements of each tensor, spread evenly over it; None where they cannot be read.

    What is on a device comes in one copy for each type of elements, for which this waits.
    """
    picked = [_picked(each, count) for each in tensors]
    kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for at, each in enumerate(picked):
        if each is not None:
            kinds.setdefault((each.device, each.dtype), []).append(at)
    found: list[list[float] | None] = [None] * len(picked)
    for places in kinds.values():
        parts = [each for at in places if (each := picked[at]) is not None]
        copied = HostCopy(torch.cat(parts))
        copied.wait()
        joined = copied.tensor()
        numbers = (joined.to(torch.float64) if joined.is_floating_point() else joined.to(torch.int64)).tolist()
        begin = 0
        for at, part in zip(places, parts):
            found[at] = numbers[begin : begin + part.numel()]
            begin += part.numel()
    return found


def _picked(tensor: torch.Tensor, count: int) -> torch.Tensor | None:
    """Return some elements in the order of the indices, so that they are the same under another layout of the memory."""
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided or tensor.is_meta or not tensor.numel():
        return None
    if tensor.is_cuda and is_capturing():
        return None
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    # A script may have freed the memory (`resize_(0)` of the storage).
    if (tensor.storage_offset() + last + 1) * tensor.element_size() > tensor.untyped_storage().nbytes():
        return None
    try:
        with torch.no_grad():
            data, size = tensor.detach(), tensor.numel()
            every = max(1, size // count)
            if data.is_contiguous():
                some = data.view(-1)[::every][:count]
            else:
                places = torch.arange(0, size, every, device=data.device)[:count]
                some = data[torch.unravel_index(places, data.shape)]
            return torch.view_as_real(some.resolve_conj()).flatten() if some.is_complex() else some.resolve_neg()
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def _is_random_state(value: torch.Tensor) -> bool:
    return value.dtype is torch.uint8 and value.is_cpu and value.dim() == 1 and value.numel() == random_state_bytes()


def random_state_bytes() -> int:
    """Return the number of bytes of a state of torch's random generator for the CPU."""
    return int(torch.default_generator.get_state().numel())


def _is_module_state(value: dict[Any, Any]) -> bool:
    """Return whether most values are tensors under names of parameters. A sample of a data set has other names."""
    if not all(type(key) is str for key in value):
        return False
    named = sum(isinstance(each, torch.Tensor) and ("." in key or key in _OF_ROOT) for key, each in value.items())
    return 2 * named > len(value)
