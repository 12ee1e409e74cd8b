"""Find calls of `Module.load_state_dict` that left tensors of a used model without a value. Runs on the training thread."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from gradtui.dataclass import dataclass
from gradtui.probe.runtime import ByIdentity
from gradtui.probe.script_calls.matching_keys import Shapes, best_prefixes, shape_of, states_within, whole_parts
from gradtui.probe.script_calls.sites import path_of, site_of
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.module_walk import named_buffers, named_parameters
from gradtui.probe.torch_private.private_names import storage_key
from gradtui.protocol.call_order import CallSite
from gradtui.protocol.events import StateLoaded

_MAX_CALLS = 32
"""Calls that left something and are followed, at most: the first ones."""
_EXAMPLES = 3
_MAX_PATHS = 50
_STATES, _KEYS = 4, 20_000
"""States of loaded files whose names and shapes are remembered, at most: the newest ones; and names of each."""
_BUFFER = "a buffer"
"""Stands for the path of a file in memory."""


class _Dropped(NamedTuple):
    """What a file has that the script has read and not loaded."""

    file: str
    other_shapes: int
    """Keys of it that the module has with another shape."""
    prefixes: tuple[str, str]
    fitting: list[str]


_NOTHING = _Dropped("", 0, ("", ""), [])


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
    fitting: frozenset[str]
    """The keys that would have got a value with `prefixes`."""
    dropped: _Dropped
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
        self._files: deque[tuple[str, Shapes]] = deque(maxlen=_STATES)
        """The path of a loaded file, and the names and shapes in one of its states."""

    def file_read(self, path: str, states: list[Mapping[str, Any]]) -> None:
        """Note the names and shapes of states of modules that the script has read from a file."""
        if not self._counter.steps:
            for state in states:
                if len(state) <= _KEYS:
                    self._files.append((path, {key: shape_of(value) for key, value in state.items()}))

    def ended(
        self, module: nn.Module, given: Any, missing: list[str], unexpected: list[str], own: Collection[str]
    ) -> None:
        """Note what a call that has ended was given and has left. `own`: keys for which the module's own tensor was given."""
        self.calls += 1
        if not isinstance(given, Mapping) or (not missing and not unexpected and self._whole.get(module)):
            return
        named = dict(named_parameters(module, remove_duplicate=False))
        left = {*missing, *unexpected, *own}
        for key in given:
            if key in named and key not in left:
                self._loaded.set(named[key], True)
        if not left:
            self._whole.set(module, True)
        if len(self._left) < _MAX_CALLS and (own or missing):
            self._note(module, given, missing, unexpected, own, named)

    def _note(
        self,
        module: nn.Module,
        given: Mapping[str, Any],
        missing: list[str],
        unexpected: list[str],
        own: Collection[str],
        named: Mapping[str, torch.Tensor],
    ) -> None:
        tensors = _tensors_of(module)
        left = {*own, *unexpected}
        matched = [key for key in given if key not in left]
        without = [*missing, *own]
        wanted = {key: shape_of(tensors.get(key)) for key in without}
        nested = {f"{outer}.{key}": each for outer, state in states_within(given) for key, each in state.items()}
        offered = {key: shape_of(value) for key, value in {**given, **nested}.items() if key not in tensors}
        prefixes, fitting = best_prefixes(offered, wanted)
        dropped = _NOTHING
        if not unexpected:
            # The script has loaded one part: on purpose, as adapters are, or because a filter has dropped the others.
            dropped = self._dropped({key: shape_of(given[key]) for key in matched}, wanted, tensors.keys())
            prefixes, fitting = dropped.prefixes, dropped.fitting
            if matched and not dropped.file:
                return
        self._left.append(
            _Left(
                self.calls,
                weakref.ref(module),
                type(module).__name__,
                len(given),
                len(matched) if matched else len(own),
                len(matched) + len(without),
                unexpected,
                without,
                prefixes,
                frozenset(fitting),
                dropped,
                [(key, weakref.ref(named[key])) for key in without if key in named],
                frozenset(fitting) | (whole_parts(missing, tensors) if unexpected else frozenset()),
                bool(own) and not matched,
                site_of("load"),
            )
        )

    def _dropped(self, matched: Shapes, wanted: Shapes, own: Collection[str]) -> _Dropped:
        """Return what the newest file has for the wanted keys that also has the keys that were loaded."""
        for path, state in reversed(self._files):
            if all(state.get(key) == shape for key, shape in matched.items()):
                found = best_prefixes({key: shape for key, shape in state.items() if key not in own}, wanted)
                other_shapes = sum(state.get(key, shape) != shape for key, shape in wanted.items())
                if found[1] or other_shapes:
                    return _Dropped(path or _BUFFER, other_shapes, *found)
        return _NOTHING

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
        shown = [(key, tensor, paths[key]) for key, tensor in still if key in paths]
        frozen = [
            path
            for key, tensor, path in shown
            if not tensor.requires_grad and (not left.matched or key in left.frozen_counts)
        ]
        fitting = [path for key, _, path in shown if key in left.fitting]
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
            len(left.fitting),
            tuple(frozen[:_MAX_PATHS]),
            len(frozen),
            left.are_own,
            # A part that another call has loaded: the script loads in parts, or tries.
            len(still) < len(alive),
            left.site,
            tuple(fitting[:_MAX_PATHS]),
            left.dropped.file,
            left.dropped.other_shapes,
        )
        known = left.reported
        if known is None or (known.frozen, known.is_loaded) != (event.frozen, event.is_loaded):
            left.reported = event
            self._emit(event)


def own_tensors(module: nn.Module, given: Any) -> tuple[list[str], bool]:
    """Return the keys of given tensors that share memory with the module's tensor of the same key, and whether all do."""
    if not isinstance(given, Mapping) or not given:
        return [], False
    own = _tensors_of(module)
    tensors = [(key, value) for key, value in given.items() if type(value) in (torch.Tensor, nn.Parameter)]
    shared = [key for key, value in tensors if key in own and _memory(value) == _memory(own[key])]
    return shared, bool(shared) and len(shared) == len(tensors)


def _tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    buffers = named_buffers(module, remove_duplicate=False)
    return {**dict(named_parameters(module, remove_duplicate=False)), **dict(buffers)}


def _memory(tensor: torch.Tensor) -> tuple[int, int] | int:
    if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.layout is not torch.strided or tensor.is_meta:
        return id(tensor)
    # Tensors without elements have no memory to share.
    return (storage_key(tensor), int(tensor.storage_offset())) if tensor.numel() else 0
