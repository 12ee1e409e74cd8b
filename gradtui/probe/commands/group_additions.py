"""Emit which parameters commands have added to the script's optimizers. Training thread only, at a boundary."""

from __future__ import annotations

import torch

from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.runtime import ProbeContext
from gradtui.protocol.events import OptimizersExtended
from gradtui.protocol.vocabulary import ExtendedOptimizer

_Additions = tuple[tuple[ExtendedOptimizer, ...], tuple[str, ...]]


class AdditionsReporter:
    """Emits `OptimizersExtended` whenever the additions to the optimizers have changed."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._reported: _Additions = ((), ())

    def report(self, step: int) -> None:
        """Emit the parameters that commands have added to optimizers, and those taken out after they had trained."""
        now = self._now()
        if now != self._reported:
            self._reported = now
            self._emit(OptimizersExtended(self._clock.at(), step, *now))

    def _now(self) -> _Additions:
        joined = self._view.joined
        if not joined:
            return (), ()
        extended, listed = [], set[int]()
        for optimizer in self._view.live_optimizers():
            owned = {id(tensor): tensor for tensor in membership.parameters(optimizer)}
            added = [tensor for tensor in joined.inside() if id(tensor) in owned]
            # Optimizers that share their groups are reported once.
            if added and not listed.intersection(map(id, added)):
                extended.append(
                    ExtendedOptimizer(type(optimizer).__name__, len(owned) - len(added), self._paths(added))
                )
            listed.update(map(id, added))
        return tuple(extended), self._paths(joined.trained_outside())

    def _paths(self, tensors: list[torch.Tensor]) -> tuple[str, ...]:
        tree = self._view.tree
        return tuple(tree.parameters[index].path for tensor in tensors if (index := tree.owns(tensor)) is not None)
