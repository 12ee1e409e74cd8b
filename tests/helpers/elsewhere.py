"""Optimizer state on what seems a device, without one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor


class Elsewhere(Tensor):
    """A tensor that says that it is on a device; `to` brings it to the host and back, by copies."""

    device = torch.device("cuda", 0)

    def to(self, device: object) -> Tensor:  # type: ignore[override]
        return self.as_subclass(Tensor).clone()


def move_moments(
    optimizer: torch.optim.Optimizer, parameters: Iterable[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let Adam's moments of these parameters seem to be on a device. The step counters are on the host, as on CUDA."""
    plain = Tensor.to

    def to(tensor: Tensor, device: object, *args: object, **options: object) -> Tensor:
        if str(device) == "cuda:0":
            return tensor.clone().as_subclass(Elsewhere)
        return plain(tensor, device, *args, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(Tensor, "to", to)
    for parameter in parameters:
        state = optimizer.state[parameter]
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = state[name].as_subclass(Elsewhere)
