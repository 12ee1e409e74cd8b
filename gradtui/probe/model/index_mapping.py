"""Map the indexes of modules and parameters from one listing to the next. Training thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

from gradtui.dataclass import dataclass
from gradtui.probe.model.module_tree import ModuleTree

T = TypeVar("T")


@dataclass(frozen=True)
class IndexMapping:
    """For each index in the new listing: the index of the same object in the previous one, -1 if it was not listed there."""

    modules: tuple[int, ...]
    parameters: tuple[int, ...]

    @classmethod
    def between(cls, before: ModuleTree, after: ModuleTree) -> IndexMapping:
        """Map `after` to `before` by identity. A parameter that was replaced by another one is not mapped."""
        modules, parameters = [-1] * len(after.modules), [-1] * len(after.parameters)
        indices = {id(module): index for index, module in before.live_modules()}
        for index, module in after.live_modules():
            modules[index] = indices.get(id(module), -1)
        for index, tensor in after.live_parameters():
            former = before.owns(tensor)
            parameters[index] = -1 if former is None else former
        return cls(tuple(modules), tuple(parameters))

    @cached_property
    def _new_modules(self) -> dict[int, int]:
        return {former: index for index, former in enumerate(self.modules) if former >= 0}

    @cached_property
    def _new_parameters(self) -> dict[int, int]:
        return {former: index for index, former in enumerate(self.parameters) if former >= 0}

    def of_parameters(self, values: Mapping[int, T]) -> dict[int, T]:
        """Return these values by new index of the parameter, without parameters that are no longer listed."""
        new = self._new_parameters
        return {new[index]: value for index, value in values.items() if index in new}

    def of_indices(self, parameters: Sequence[int]) -> list[int] | None:
        """Return the new index of each of these parameters, -1 where it is no longer listed; None if none of them is."""
        new = self._new_parameters
        moved = [new.get(index, -1) for index in parameters]
        return None if max(parameters, default=-1) >= 0 > max(moved, default=-1) else moved

    def of_modules(self, values: Mapping[int, T]) -> dict[int, T]:
        """Return these values by new index of the module, without modules that are no longer listed."""
        new = self._new_modules
        return {new[index]: value for index, value in values.items() if index in new}

    def parameter_set(self, indices: Iterable[int]) -> set[int]:
        """Return the new indexes of those of these parameters that are listed."""
        new = self._new_parameters
        return {new[index] for index in indices if index in new}

    def letters(self, known: str) -> str:
        """Return one letter per new parameter, "-" where there was none; empty where `known` is empty."""
        return "".join(known[former] if former >= 0 else "-" for former in self.parameters) if known else ""
