"""Register every optimizer that was constructed or stepped, by index, with its description after it was freed.

Holds weak references only. An index belongs to one optimizer for the whole run, up to `MAX_PLACES` of them: in a script
that constructs optimizers again and again (meta-learning), new ones share the indexes of freed ones. Training thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace

import torch
from torch.optim import Optimizer

from gradtui.protocol.vocabulary import OptimizerInfo

MAX_PLACES = 1_000
"""Each optimizer has its own index up to this number. After that a new one gets the index of one that was freed."""


class OptimizerRegistry:
    """Assigns each optimizer an index, and describes them all. `found` is called when one is registered for the first time."""

    def __init__(self, found: Callable[[], None]) -> None:
        self._found = found
        self._references: list[weakref.ref[Optimizer]] = []
        self._places: dict[int, int] = {}
        """id of an optimizer -> its index in `_references`, which tells whether the id is still its own."""
        self._described: list[OptimizerInfo] = []
        """The last description by index; before the first description, what was known at registration."""
        self._new: list[int] = []

    def register(self, optimizer: Optimizer) -> int:
        """Return the optimizer's index. Called at each step, so it must be quick."""
        known = self._places.get(id(optimizer))
        if known is not None and self._references[known]() is optimizer:
            return known
        place = self._free_place()
        self._places = {key: other for key, other in self._places.items() if self._references[other]() is not None}
        self._references[place : place + 1] = [weakref.ref(optimizer)]
        self._places[id(optimizer)] = place
        sharing = self._described[place].sharing + 1 if place < len(self._described) else 1
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        info = OptimizerInfo(type(optimizer).__name__, len(optimizer.param_groups), (), count, sharing=sharing)
        self._described[place : place + 1] = [info]
        self._new.append(place)
        self._found()
        return place

    def take_new(self) -> list[int]:
        """Return the indexes of the optimizers registered since the last call."""
        new, self._new = self._new, []
        return new

    def all(self) -> list[Optimizer | None]:
        """Return every optimizer by index; None for one that was freed."""
        return [reference() for reference in self._references]

    def describe(
        self, places_of: Callable[[list[torch.Tensor]], list[int | None]], *, at_end: bool = False
    ) -> tuple[OptimizerInfo, ...]:
        """Describe every optimizer by index.

        `places_of` returns the indexes of parameters in the module tree, None for unlisted ones.

        A freed optimizer owns no parameters. `at_end` of the run its description says that it is freed, with what it owned.
        """
        for place, optimizer in enumerate(self.all()):
            known = self._described[place]
            if optimizer is not None:
                self._described[place] = _describe(optimizer, known.sharing, places_of)
            elif at_end:
                self._described[place] = replace(known, freed=True)
            elif not known.freed:
                unknown = len(known.parameters) + known.unknown_parameters
                self._described[place] = replace(
                    known, parameters=(), unknown_parameters=unknown, group_of=(), freed=True
                )
        return tuple(self._described)

    def sizes(self) -> list[list[int]]:
        """Return the number of parameters in each group of each optimizer: enough to notice that a script has added some."""
        return [[len(group["params"]) for group in o.param_groups] if o is not None else [] for o in self.all()]

    def _free_place(self) -> int:
        end = len(self._references)
        if end < MAX_PLACES:
            return end
        return next((place for place, reference in enumerate(self._references) if reference() is None), end)


def _describe(
    optimizer: Optimizer, sharing: int, places_of: Callable[[list[torch.Tensor]], list[int | None]]
) -> OptimizerInfo:
    numbers = [number for number, group in enumerate(optimizer.param_groups) for _ in group["params"]]
    places = places_of([tensor for group in optimizer.param_groups for tensor in group["params"]])
    listed = [(owned, number) for owned, number in zip(places, numbers) if owned is not None]
    return OptimizerInfo(
        type(optimizer).__name__,
        len(optimizer.param_groups),
        tuple([owned for owned, _ in listed]),
        len(places) - len(listed),
        tuple([number for _, number in listed]),
        sharing=sharing,
    )
