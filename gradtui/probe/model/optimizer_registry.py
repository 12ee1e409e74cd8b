"""Register every optimizer that was constructed or stepped, by index, with its description after it was freed.

Holds weak references only. An index belongs to one optimizer for the whole run, up to `MAX_OPTIMIZERS` of them: in a script
that constructs optimizers again and again (meta-learning), new ones share the indexes of freed ones. Training thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch.optim import Optimizer

from gradtui.probe.model.own_rates import OwnRates, ParamGroup
from gradtui.protocol.vocabulary import OptimizerInfo

MAX_OPTIMIZERS = 1_000
"""Each optimizer has its own index up to this number. After that a new one gets the index of one that was freed."""

_IndicesOf = Callable[[list[torch.Tensor]], "list[int | None]"]


class OptimizerRegistry:
    """Assigns each optimizer an index, and describes them all. `found` is called when one is registered for the first time."""

    def __init__(self, found: Callable[[], None]) -> None:
        self._found = found
        self.rates = OwnRates()
        """The learning rates that commands have given to parameters."""
        self._references: list[weakref.ref[Optimizer]] = []
        self._indices: dict[int, int] = {}
        """id of an optimizer -> its index in `_references`, which tells whether the id is still its own."""
        self._described: list[OptimizerInfo] = []
        """The last description by index; before the first description, what was known at registration."""
        self._new: list[int] = []

    def register(self, optimizer: Optimizer) -> int:
        """Return the optimizer's index. Called at each step, so it must be quick."""
        known = self._indices.get(id(optimizer))
        if known is not None and self._references[known]() is optimizer:
            return known
        index = self._free_index()
        self._indices = {key: other for key, other in self._indices.items() if self._references[other]() is not None}
        self._references[index : index + 1] = [weakref.ref(optimizer)]
        self._indices[id(optimizer)] = index
        sharing = self._described[index].sharing + 1 if index < len(self._described) else 1
        self._described[index : index + 1] = [
            _describe(optimizer, optimizer.param_groups, sharing, lambda parameters: [None] * len(parameters))
        ]
        self._new.append(index)
        self._found()
        return index

    def index_of(self, optimizer: Optimizer) -> int | None:
        """Return the index of a registered optimizer, None for another object: frameworks wrap optimizers in copies."""
        known = self._indices.get(id(optimizer))
        return known if known is not None and self._references[known]() is optimizer else None

    def take_new(self) -> list[int]:
        """Return the indexes of the optimizers registered since the last call."""
        new, self._new = self._new, []
        return new

    def is_alive(self, index: int) -> bool:
        """Return whether the optimizer with this index is not freed."""
        return self._references[index]() is not None

    def all(self) -> list[Optimizer | None]:
        """Return every optimizer by index; None for one that was freed."""
        return [reference() for reference in self._references]

    def groups(self) -> list[Sequence[ParamGroup] | None]:
        """Return the groups with which each optimizer steps, by index; None for one that was freed."""
        rates = self.rates
        return [
            None
            if (optimizer := reference()) is None
            else rates.groups_of(optimizer)
            if rates.are_used
            else optimizer.param_groups
            for reference in self._references
        ]

    def describe(self, indices_of: _IndicesOf, *, at_end: bool = False) -> tuple[OptimizerInfo, ...]:
        """Describe every optimizer by index. `indices_of` returns the indexes of parameters, None for unlisted ones.

        A freed optimizer owns no parameters. `at_end` of the run its description says that it is freed, with what it owned.
        """
        groups: dict[int, int] = {}
        """id of a group -> index of the first optimizer that has it."""
        for index, optimizer in enumerate(self.all()):
            known = self._described[index]
            if optimizer is not None:
                firsts = [groups.setdefault(id(group), index) for group in optimizer.param_groups]
                groups_of = next((first for first in firsts if first != index), -1)
                described = _describe(optimizer, self.rates.groups_of(optimizer), known.sharing, indices_of)
                self._described[index] = replace(described, groups_of=groups_of)
            elif at_end:
                self._described[index] = replace(known, freed=True)
            elif not known.freed:
                unknown = len(known.parameters) + known.unknown_parameters
                self._described[index] = replace(
                    known, parameters=(), unknown_parameters=unknown, group_of=(), freed=True
                )
        return tuple(self._described)

    def sizes(self) -> list[list[int]]:
        """Return the number of parameters in each group of each optimizer: enough to notice that a script has added some."""
        return [[len(group["params"]) for group in o.param_groups] if o is not None else [] for o in self.all()]

    def _free_index(self) -> int:
        end = len(self._references)
        if end < MAX_OPTIMIZERS:
            return end
        return next((index for index, reference in enumerate(self._references) if reference() is None), end)


def _describe(
    optimizer: Optimizer, groups: Sequence[ParamGroup], sharing: int, indices_of: _IndicesOf
) -> OptimizerInfo:
    # A parameter may be listed twice. It is one parameter all the same.
    found: dict[int, tuple[torch.Tensor, int]] = {}
    for number, group in enumerate(groups):
        for tensor in group["params"]:
            found.setdefault(id(tensor), (tensor, number))
    entries = found.values()
    indices = indices_of([tensor for tensor, _ in entries])
    listed = [(index, number) for index, (_, number) in zip(indices, entries) if index is not None]
    return OptimizerInfo(
        type(optimizer).__name__,
        len(groups),
        tuple([index for index, _ in listed]),
        len(indices) - len(listed),
        tuple([number for _, number in listed]),
        sharing=sharing,
    )
