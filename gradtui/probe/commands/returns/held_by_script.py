"""Remember what the script holds of the run beside the listed models, and search it again after some steps. Training thread."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from torch import nn

from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.kept_states import Container, held_state, items_of
from gradtui.probe.model import ModelRegistry

_LOOK_AGAIN = 100
"""Steps after which the script's variables are searched again, which takes up to a tenth of a second."""


class HeldByScript:
    """What was found at the last search. Containers cannot be referred to weakly: they are searched each time."""

    def __init__(self, view: ModelRegistry, crossing: Crossing) -> None:
        self._view, self._crossing = view, crossing
        self._averages: list[tuple[str, weakref.ref[nn.Module]]] = []
        self._found_at: int | None = None
        self.nbytes = 0
        """The bytes of the tensors in containers."""
        self.unknown: tuple[str, str] | None = None
        """The name and the class of an object whose state only it knows."""

    def look_again(self) -> None:
        """Search at the next call."""
        self._found_at = None

    def averages(self) -> list[tuple[str, nn.Module]]:
        """Return copies of models, each with the script's name of it."""
        are_there = all(reference() is not None for _, reference in self._averages)
        if self._found_at is None or self._crossing.step - self._found_at >= _LOOK_AGAIN or not are_there:
            self._search()
        return [(name, each) for name, reference in self._averages if (each := reference()) is not None]

    def containers(self) -> Sequence[tuple[str, Container]]:
        """Return the containers of tensors that the script holds now; none if the last search has found none."""
        return self._search() if self.nbytes else ()

    def _search(self) -> Sequence[tuple[str, Container]]:
        found = held_state(self._view.tree, self._view.live_optimizers())
        self._averages = [(name, weakref.ref(each)) for name, each in found.modules]
        self._found_at, self.unknown = self._crossing.step, found.unknown
        self.nbytes = sum(each.nbytes for _, container in found.containers for _, each in items_of(container))
        for optimizer in found.optimizers:
            self._view.discovery.register_optimizer(optimizer)
        return found.containers
