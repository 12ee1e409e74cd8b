"""What a script may change of the run between two epochs. A side that is given batches again sees no end of an epoch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.probe.torch_private.private_names import version_of


def between_epochs(
    parameters: Iterable[torch.Tensor], optimizers: Iterable[Optimizer], schedulers: Iterable[Any]
) -> tuple[object, ...]:
    """Return values that differ if the script has changed learning rates, schedulers, weights or what trains."""
    tensors = [(each.requires_grad, version_of(each)) for each in parameters if not each.is_inference()]
    groups = [
        (len(group["params"]), *(value for value in group.values() if isinstance(value, (bool, int, float))))
        for each in optimizers
        for group in each.param_groups
    ]
    steps = [(getattr(each, "last_epoch", None), getattr(each, "_step_count", None)) for each in schedulers]
    return tensors, groups, steps
