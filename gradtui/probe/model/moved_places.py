"""Where the modules and parameters of one listing are in the next one. Training thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from gradtui.probe.model.module_tree import ModuleTree

T = TypeVar("T")


@dataclass(frozen=True)
class IndexMapping:
    """By place in the new listing: the place of the same object in the one before, -1 if it was not listed there."""

    modules: tuple[int, ...]
    parameters: tuple[int, ...]

    @classmethod
    def between(cls, before: ModuleTree, after: ModuleTree) -> IndexMapping:
        """What of `before` is in `after`, by identity: a parameter that was replaced by another one is not."""
        modules, parameters = [-1] * len(after.modules), [-1] * len(after.parameters)
        places = {id(module): place for place, module in before.live_modules()}
        for place, module in after.live_modules():
            modules[place] = places.get(id(module), -1)
        for place, tensor in after.live_parameters():
            former = before.owns(tensor)
            parameters[place] = -1 if former is None else former
        return cls(tuple(modules), tuple(parameters))

    @cached_property
    def _new_modules(self) -> dict[int, int]:
        return {former: place for place, former in enumerate(self.modules) if former >= 0}

    @cached_property
    def _new_parameters(self) -> dict[int, int]:
        return {former: place for place, former in enumerate(self.parameters) if former >= 0}

    def of_parameters(self, values: Mapping[int, T]) -> dict[int, T]:
        """What is known by place of a parameter, by its new place; what is no longer listed is left out."""
        new = self._new_parameters
        return {new[place]: value for place, value in values.items() if place in new}

    def of_places(self, parameters: Sequence[int]) -> list[int] | None:
        """The new place of each of these parameters, -1 where it is no longer listed; None if none of them is."""
        new = self._new_parameters
        moved = [new.get(place, -1) for place in parameters]
        return None if max(parameters, default=-1) >= 0 > max(moved, default=-1) else moved

    def of_modules(self, values: Mapping[int, T]) -> dict[int, T]:
        """Likewise by place of a module."""
        new = self._new_modules
        return {new[place]: value for place, value in values.items() if place in new}

    def parameter_set(self, places: Iterable[int]) -> set[int]:
        """The new places of these parameters, as far as they are listed."""
        new = self._new_parameters
        return {new[place] for place in places if place in new}

    def letters(self, known: str) -> str:
        """One letter per parameter, "-" where there was none; empty where nothing was known."""
        return "".join(known[former] if former >= 0 else "-" for former in self.parameters) if known else ""
