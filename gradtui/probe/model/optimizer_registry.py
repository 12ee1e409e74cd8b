"""Every optimizer that was made or stepped, by place, with what is known of it after it was freed. Training thread.

Weak references only. A place belongs to one optimizer for the whole run, up to `MAX_PLACES` of them: a script that makes
optimizers again and again (meta-learning) shares places among those that were freed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace

import torch
from torch.optim import Optimizer

from gradtui.protocol.vocabulary import OptimizerInfo

MAX_PLACES = 1_000
"""Each optimizer has a place of its own up to this number. After that a new one takes the place of one that was freed."""


class OptimizerRegistry:
    """Gives each optimizer its place, and describes them all. `found` is called when one is seen for the first time."""

    def __init__(self, found: Callable[[], None]) -> None:
        self._found = found
        self._references: list[weakref.ref[Optimizer]] = []
        self._places: dict[int, int] = {}
        """id of an optimizer -> its place in `_references`, which knows whether the id is still its own."""
        self._described: list[OptimizerInfo] = []
        """By place, as of the last description; of one that was never described, what was known when it was first seen."""
        self._new: list[int] = []

    def register(self, optimizer: Optimizer) -> int:
        """The optimizer's place. Asked at each step, so it is quick."""
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
        """Places of the optimizers that were seen for the first time since the last call."""
        new, self._new = self._new, []
        return new

    def all(self) -> list[Optimizer | None]:
        """Every optimizer by place; None in the place of one that was freed."""
        return [reference() for reference in self._references]

    def describe(
        self, places_of: Callable[[list[torch.Tensor]], list[int | None]], *, at_end: bool = False
    ) -> tuple[OptimizerInfo, ...]:
        """Every optimizer by place; `places_of` gives the places of parameters in the module tree, None for one that has none.

        One that was freed owns nothing any more; at the end of the run it is said to be freed, with what it owned.
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
        """How many parameters each group of each optimizer has: enough to notice that a script has added some."""
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
