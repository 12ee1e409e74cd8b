"""Find state of an optimizer that was loaded onto other parameters than those it is of. Runs on the training thread.

torch matches what it loads by position. Which parameter a state is of is known from its tensors, if a living optimizer has
them, and from a few of their elements, if an optimizer's `state_dict()` has returned them before: they are the same after a
copy and in a file. A state that was saved with `param_names` says it itself. Values on a device are not read.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.script_calls.sites import name_within, site_of
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.call_order import CallSite
from gradtui.protocol.events import OptimizerStateMisplaced

_LIKE_THE_PARAMETER = frozenset({
    "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "square_avg", "grad_avg", "acc_delta", "sum",
    "prev", "step_size",
})  # fmt: skip
"""The entries of a state that have the shape of their parameter."""
_SAVES = 8
"""The newest saved states whose elements are remembered."""
_LOADS = 8
_EXAMPLES = 3
_PICKED = 5

_Print = tuple[Any, ...]


@dataclass(frozen=True)
class _Source:
    """The parameter that a state is of."""

    parameter: weakref.ref[torch.Tensor] | None
    name: str | None


@dataclass
class _Load:
    """A state that was loaded, by position of the parameters."""

    optimizer: weakref.ref[Optimizer]
    pairs: list[tuple[_Source, weakref.ref[torch.Tensor]]]
    tensors: int
    unfit: int
    site: CallSite | None
    reported: tuple[int, ...] = field(default=(0, 0))


class OptimizerStates:
    """Follows states of optimizers from where they are saved to where they are loaded."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock, self._models = context.emit, context.clock, context.models
        self._counter = context.counter
        self._saves: list[dict[_Print, _Source]] = []
        self._loads: list[_Load] = []

    def saved(self, optimizer: Optimizer, state: Any) -> None:
        """Remember a few elements of each tensor that `state_dict()` of an optimizer has returned."""
        prints: dict[_Print, _Source] = {}
        for entry, parameter, _ in _by_position(optimizer, state):
            source = _Source(weakref.ref(parameter), name_within(self._models.tree, parameter))
            prints.update(dict.fromkeys(_prints_of(entry), source))
        self._saves = [*self._saves[1 - _SAVES :], prints]

    def loading(self, optimizer: Optimizer, state: Any, names: Sequence[str] = ()) -> None:
        """Note which parameters a state is of that is about to be loaded.

        `names` are those that the parameters had when it was saved, by place; empty if they are unknown.
        """
        living = self._living_states()
        pairs, tensors, unfit = [], 0, 0
        for entry, parameter, name in _by_position(optimizer, state, names):
            tensors += 1
            sizes = [each.shape for key, each in entry.items() if key in _LIKE_THE_PARAMETER and _is_plain(each)]
            unfit += _is_plain(parameter) and any(size != parameter.shape for size in sizes)
            source = self._source_of(entry, living) or (_Source(None, name) if name is not None else None)
            if source is not None:
                pairs.append((source, weakref.ref(parameter)))
        self._loads = [each for each in self._loads if each.optimizer() not in (None, optimizer)][1 - _LOADS :]
        if pairs or unfit:
            self._loads.append(_Load(weakref.ref(optimizer), pairs, tensors, unfit, site_of("load")))

    def report(self) -> None:
        """Emit which states are on other parameters, once the models are listed."""
        # With state of another shape the first step fails.
        if self._counter.steps or self._models.tree.models:
            for each in self._loads:
                self._report(each)

    def _report(self, load: _Load) -> None:
        optimizer, tree = load.optimizer(), self._models.tree
        if optimizer is None:
            return
        own = [each for group in optimizer.param_groups for each in group["params"]]
        names = {name for each in own if (name := name_within(tree, each)) is not None}
        known, moved = 0, []
        for source, reference in load.pairs:
            target = reference()
            origin = source.parameter() if source.parameter is not None else None
            if target is None:
                continue
            got = name_within(tree, target)
            if origin is not None and any(origin is each for each in own):
                known += 1
                if origin is not target:
                    moved.append((name_within(tree, origin) or "another one", got or "a parameter"))
            elif source.name is not None and got is not None and source.name in names:
                known += 1
                if source.name != got:
                    moved.append((source.name, got))
        if (len(moved), load.unfit) != load.reported:
            load.reported = len(moved), load.unfit
            self._emit(
                OptimizerStateMisplaced(
                    self._clock.at(),
                    self._counter.steps,
                    self._models.discovery.register_optimizer(optimizer),
                    load.tensors,
                    known,
                    len(moved),
                    tuple(moved[:_EXAMPLES]),
                    load.unfit,
                    load.site,
                )
            )

    def _living_states(self) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """Return, by id of a tensor in the state of a living optimizer: this tensor, and its parameter."""
        return {
            id(each): (each, parameter)
            for optimizer in self._models.live_optimizers()
            for parameter, entry in optimizer.state.items()
            if isinstance(entry, Mapping) and isinstance(parameter, torch.Tensor)
            for each in entry.values()
            if isinstance(each, torch.Tensor)
        }

    def _source_of(
        self, entry: Mapping[str, Any], living: Mapping[int, tuple[torch.Tensor, torch.Tensor]]
    ) -> _Source | None:
        for each in entry.values():
            found = living.get(id(each))
            if found is not None and found[0] is each:
                return _Source(weakref.ref(found[1]), name_within(self._models.tree, found[1]))
        for key in _prints_of(entry):
            for prints in reversed(self._saves):
                if key in prints:
                    return prints[key]
        return None


def _by_position(
    optimizer: Optimizer, state: Any, known: Sequence[str] = ()
) -> Iterator[tuple[Mapping[str, Any], torch.Tensor, str | None]]:
    """Yield the entry, the parameter and the saved name (None if there is none) of each position of a saved state."""
    groups, entries = (state.get(key) if isinstance(state, Mapping) else None for key in ("param_groups", "state"))
    if not isinstance(groups, list) or not isinstance(entries, Mapping):
        return  # torch refuses it
    saved = [number for group in groups for number in group["params"]]
    names = [name for group in groups for name in group.get("param_names") or [None] * len(group["params"])]
    if len(known) == len(names):
        names = [name or other or None for name, other in zip(names, known)]
    own = [each for group in optimizer.param_groups for each in group["params"]]
    if len(saved) == len(own) == len(names):
        for number, parameter, name in zip(saved, own, names):
            entry = entries.get(number)
            if isinstance(entry, Mapping) and entry:
                yield entry, parameter, name


def _is_plain(tensor: Any) -> bool:
    return type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout is torch.strided


def _prints_of(entry: Mapping[str, Any]) -> Iterator[_Print]:
    """Yield name, shape and a few elements of each tensor that has others than 0: those of unused parameters say nothing."""
    for key, each in entry.items():
        if key in _LIKE_THE_PARAMETER and _is_plain(each) and each.is_cpu and each.is_floating_point() and each.numel():
            flat = each.detach().reshape(-1) if each.is_contiguous() else each.detach().flatten()
            picked = flat[:: max(1, flat.numel() // _PICKED)].tolist()
            if any(picked):
                yield key, tuple(each.shape), tuple(picked)
