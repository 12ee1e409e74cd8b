"""What the parameter groups are set to, read without waiting for a device. Runs on the training thread, on examined steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.protocol.vocabulary import GroupSettings


def read_groups(optimizers: Sequence[Optimizer | None]) -> tuple[tuple[GroupSettings, ...], ...]:
    """The settings of each group of each optimizer; none of one that is gone."""
    return tuple(
        tuple(
            GroupSettings(_number(group.get("lr")), _number(group.get("weight_decay")))
            for group in optimizer.param_groups
        )
        if optimizer is not None
        else ()
        for optimizer in optimizers
    )


def _number(value: Any) -> float | None:
    if isinstance(value, torch.Tensor):
        # Reading it from a device would wait for the device.
        return float(value) if value.device.type == "cpu" and value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) else None
