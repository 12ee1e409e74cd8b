"""The factor by which the script's GradScaler multiplies the loss of the current step. Runs on the training thread."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from gradtui.probe.torch_private.private_names import loss_scale


class LossScale:
    """Knows the script's GradScalers, and which one has scaled the loss of the current step."""

    def __init__(self) -> None:
        self._scalers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._scaled_by: weakref.ref[Any] | None = None

    @property
    def is_in_use(self) -> bool:
        """Whether the script has an enabled GradScaler."""
        return any(scaler.is_enabled() for scaler in self._scalers)

    @property
    def is_applied(self) -> bool:
        """Whether a GradScaler has multiplied the loss of the current step."""
        return self._scaled_by is not None and self._scaled_by() is not None

    def live(self) -> list[Any]:
        """Return the GradScalers in use."""
        return [scaler for scaler in self._scalers if scaler.is_enabled()]

    def add(self, scaler: Any) -> None:
        """Record a new GradScaler."""
        self._scalers.add(scaler)

    def scales(self, scaler: Any) -> None:
        """Record that a GradScaler multiplies a loss of this step."""
        self._scaled_by = weakref.ref(scaler)
        if not self._scalers:
            # The scaler was constructed before the probe was installed.
            self._scalers.add(scaler)

    def factor(self) -> torch.Tensor | None:
        """Return the factor in the loss and the gradients of this step, as a tensor on its device; None without one."""
        scaler = self._scaled_by() if self._scaled_by is not None else None
        return loss_scale(scaler) if scaler is not None else None

    def stepped(self) -> None:
        """End the step, whether it was executed or skipped."""
        self._scaled_by = None
