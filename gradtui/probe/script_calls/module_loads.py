"""Find calls of `Module.load_state_dict` that left tensors of a used model without a value. Runs on the training thread."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from gradtui.dataclass import dataclass
from gradtui.probe.runtime import ByIdentity
from gradtui.probe.script_calls.sites import path_of, site_of
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import storage_key
from gradtui.protocol.call_order import CallSite
from gradtui.protocol.events import StateLoaded

_MAX_CALLS = 32
"""Calls that left something and are followed, at most: the first ones."""
_EXAMPLES = 3
_MAX_PATHS = 50
_MAX_PREFIXES = 4
"""A part of a key with more prefixes than these, such as `weight`, says nothing about which keys belong together."""
_PART = 2
"""Tensors from which on a child of the module is a part of it."""

Shapes = Mapping[str, tuple[int, ...] | None]
"""By key: the shape of the tensor, None if it is no tensor."""


@dataclass
class _Left:
    """A call that left parameters of a module without a value."""

    number: int
    module: weakref.ref[nn.Module]
    type_name: str
    given: int
    matched: int
    expected: int
    unexpected: list[str]
    missing: list[str]
    prefixes: tuple[str, str]
    would_match: int
    parameters: list[tuple[str, weakref.ref[torch.Tensor]]]
    """Its parameters without a value, by key."""
    frozen_counts: frozenset[str]
    """The keys of those that count if they are frozen."""
    are_own: bool
    site: CallSite | None
    reported: StateLoaded | None = None


class ModuleLoads:
    """Follows the calls of `load_state_dict`."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock, self._models = context.emit, context.clock, context.models
        self._counter = context.counter
        self.calls = 0
        """Number of calls so far."""
        self._whole: ByIdentity[nn.Module, bool] = ByIdentity()
        """The modules of which one call has loaded everything."""
        self._loaded: ByIdentity[torch.Tensor, bool] = ByIdentity()
        """The parameters that a call has loaded."""
        self._left: list[_Left] = []

    def ended(self, module: nn.Module, given: Any, missing: list[str], unexpected: list[str], *, are_own: bool) -> None:
        """Note what a call that has ended was given and has left. `are_own`: it was given the tensors of the module itself."""
        self.calls += 1
        if not isinstance(given, Mapping) or (not missing and not unexpected and self._whole.get(module)):
            return
        named = dict(module.named_parameters(remove_duplicate=False))
        left = {*missing, *unexpected}
        if not are_own:
            for key in given:
                if key in named and key not in left:
                    self._loaded.set(named[key], True)
        if not (missing or unexpected or are_own):
            self._whole.set(module, True)
        if len(self._left) < _MAX_CALLS and (are_own or missing):
            self._note(module, given, missing, unexpected, named, are_own=are_own)

    def _note(
        self,
        module: nn.Module,
        given: Mapping[str, Any],
        missing: list[str],
        unexpected: list[str],
        named: Mapping[str, torch.Tensor],
        *,
        are_own: bool,
    ) -> None:
        matched = len(given) - len(unexpected)
        own = _tensors_of(module)
        wanted = {key: _shape(own.get(key)) for key in missing}
        offered = {key: _shape(value) for each in (given, *_nested(given)) for key, value in each.items()}
        offered = {key: shape for key, shape in offered.items() if key not in own}
        prefixes, fitting = _best_prefixes(offered, wanted)
        if matched and not are_own and not unexpected:
            # The script has loaded one part on purpose, as adapters are.
            return
        without = [key for key in (named if are_own else missing) if key in named]
        self._left.append(
            _Left(
                self.calls,
                weakref.ref(module),
                type(module).__name__,
                len(given),
                matched,
                matched + len(missing),
                unexpected,
                missing,
                prefixes,
                len(fitting),
                [(key, weakref.ref(named[key])) for key in without],
                frozenset(fitting) | _whole_parts(missing, own),
                are_own,
                site_of("load"),
            )
        )

    def has_loaded(self, parameter: torch.Tensor) -> bool:
        """Return whether a call has loaded this parameter."""
        return self._loaded.get(parameter) is not None

    def report(self) -> None:
        """Emit what the calls have left of models that are listed by now."""
        if self._counter.steps:
            for each in self._left:
                self._report(each)

    def _report(self, left: _Left) -> None:
        tree = self._models.tree
        alive = [(key, tensor) for key, reference in left.parameters if (tensor := reference()) is not None]
        paths = {key: path for key, tensor in alive if (path := path_of(tree, tensor)) is not None}
        if not paths:
            return
        still = [(key, tensor) for key, tensor in alive if self._loaded.get(tensor) is None]
        frozen = [paths[key] for key, tensor in still if not tensor.requires_grad and key in paths]
        frozen_counted = [paths[key] for key, tensor in still if self._counts(left, key, tensor) and key in paths]
        chosen = frozen_counted if left.matched else frozen
        event = StateLoaded(
            self._clock.at(),
            self._counter.steps,
            left.number,
            left.type_name,
            left.given,
            left.matched,
            left.expected,
            tuple(left.unexpected[:_EXAMPLES]),
            tuple(left.missing[:_EXAMPLES]),
            *left.prefixes,
            left.would_match,
            tuple(chosen[:_MAX_PATHS]),
            len(chosen),
            left.are_own,
            # A part that another call has loaded: the script loads in parts, or tries.
            len(still) < len(alive),
            left.site,
        )
        known = left.reported
        if known is None or (known.frozen, known.is_loaded) != (event.frozen, event.is_loaded):
            left.reported = event
            self._emit(event)

    @staticmethod
    def _counts(left: _Left, key: str, tensor: torch.Tensor) -> bool:
        return not tensor.requires_grad and key in left.frozen_counts


def are_own_tensors(module: nn.Module, given: Any) -> int:
    """Return how many of the given tensors share memory with the module's tensor of the same key; 0 if any does not."""
    if not isinstance(given, Mapping) or not given:
        return 0
    own = _tensors_of(module)
    tensors = [(key, value) for key, value in given.items() if type(value) in (torch.Tensor, nn.Parameter)]
    shared = [1 for key, value in tensors if key in own and _memory(value) == _memory(own[key])]
    return len(shared) if len(shared) == len(tensors) else 0


def _tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    buffers = module.named_buffers(remove_duplicate=False)
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(buffers)}


def _memory(tensor: torch.Tensor) -> tuple[int, int] | int:
    if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.layout is not torch.strided or tensor.is_meta:
        return id(tensor)
    # Tensors without elements have no memory to share.
    return (storage_key(tensor), int(tensor.storage_offset())) if tensor.numel() else 0


def _shape(value: object) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, torch.Tensor) and not nn.parameter.is_lazy(value) else None


def _nested(given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield states within what was given, such as that under `state_dict` of a whole checkpoint, with their keys' beginning."""
    for outer, value in given.items():
        if isinstance(value, Mapping) and any(isinstance(each, torch.Tensor) for each in value.values()):
            yield {f"{outer}.{key}": each for key, each in value.items()}


def _best_prefixes(given: Shapes, wanted: Shapes) -> tuple[tuple[str, str], list[str]]:
    """Return the beginning of given keys and what to put in its place so that most wanted keys fit, and these wanted keys.

    Two keys fit if the rest of them and the shapes are equal.
    """
    beginnings: dict[str, set[str]] = {}
    for key in wanted:
        for beginning, rest in _splits(key):
            beginnings.setdefault(rest, set()).add(beginning)
    found: Counter[tuple[str, str]] = Counter()
    fitting: dict[tuple[str, str], list[str]] = {}
    for key, shape in given.items():
        for beginning, rest in _splits(key):
            others = beginnings.get(rest, set())
            for other in others if len(others) <= _MAX_PREFIXES else others & {""}:
                if shape is not None and wanted[other + rest] == shape and other != beginning:
                    found[beginning, other] += 1
                    fitting.setdefault((beginning, other), []).append(other + rest)
    # Of equally good ones the shortest.
    best = min(found, key=lambda each: (-found[each], len(each[0]) + len(each[1])), default=None)
    if best is None or 2 * found[best] < min(len(given), len(wanted)):
        return ("", ""), []
    return best, fitting[best]


def _splits(key: str) -> Iterator[tuple[str, str]]:
    at = 0
    while True:
        yield key[:at], key[at:]
        dot = key.find(".", at)
        if dot < 0:
            return
        at = dot + 1


def _whole_parts(missing: Iterable[str], own: Collection[str]) -> frozenset[str]:
    """Return the missing keys of children of the module of which every key is missing."""
    of_child: Counter[str] = Counter(key.partition(".")[0] for key in own if "." in key)
    gone = Counter(key.partition(".")[0] for key in missing if "." in key)
    whole = {child for child, count in gone.items() if count >= max(_PART, of_child[child])}
    return frozenset(key for key in missing if key.partition(".")[0] in whole)
