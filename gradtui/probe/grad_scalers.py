"""What the script's GradScalers do: the factor in its losses, and the steps they leave out. Runs on the training thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from gradtui.probe.norm_reader import NormReader


class GradScalers:
    """Hears from every enabled `GradScaler`; `left_out` is called with the time and the optimizer of each step left out."""

    def __init__(self, norms: NormReader, left_out: Callable[[int, Optimizer], None]) -> None:
        self._norms = norms
        self._left_out = left_out
        self._passed_on = False

    def passed_on(self) -> None:
        """An optimizer's own step has run: a `GradScaler.step` around it has not left it out."""
        self._passed_on = True

    def made(self, now: int, scaler: Any) -> None:  # noqa: ARG002 - as every callback of a hook
        """A GradScaler was constructed."""
        self._norms.saw_scaler(scaler)

    def scaled(self, now: int, scaler: Any) -> None:  # noqa: ARG002
        """`GradScaler.scale` is called on what will be passed to backward."""
        self._norms.saw_scaling(scaler)

    def stepping(self, now: int) -> None:  # noqa: ARG002
        """`GradScaler.step` is called; it may leave the optimizer's step out."""
        self._passed_on = False

    def stepped(self, now: int, optimizer: Optimizer) -> None:
        """It returned."""
        if not self._passed_on:
            self._norms.bad_steps.left_out = True
            self._left_out(now, optimizer)
