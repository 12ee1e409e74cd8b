"""Detect half-precision parameters that are too coarse for the updates of their optimizer.

The values next to a value of magnitude w are about `eps * w` away. An update below half of that distance is rounded away at
every step. Computed on the training thread when the user unfreezes parameters, with one read of a few numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.probe.model import ModuleTree
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.private_names import is_wrapper, multi_tensor_norms, operations_are_observed

_HALF = (torch.float16, torch.bfloat16)
_STEP_IS_RATE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")
"""PyTorch optimizers that change every element by about the learning rate, regardless of the size of its gradient."""


def warning(
    chosen: Mapping[int, torch.Tensor], tree: ModuleTree, optimizers: Sequence[Optimizer], norms: Mapping[int, float]
) -> str:
    """Return a warning if most updates of these parameters would be rounded away; empty if not, or if that is unknown.

    `norms` maps the indices of training parameters to gradient norms, from which a typical gradient is estimated.
    """
    half = [tensor for tensor in chosen.values() if tensor.dtype in _HALF and tensor.numel() and not is_wrapper(tensor)]
    if not half or operations_are_observed():
        return ""
    owners = membership.owners(optimizers)
    owned = [tensor for tensor in half if id(tensor) in owners]
    elements = [norm / math.sqrt(tree.parameters[index].count) for index, norm in norms.items() if 0 < norm < math.inf]
    gradient = median(elements) if elements else None
    rounded: list[tuple[float, str]] = []
    try:
        magnitudes = _magnitudes(owned)
    except RuntimeError:
        # Possibly no memory on the device. The command has been applied anyway.
        return ""
    for tensor, magnitude in zip(owned, magnitudes):
        update = _update(*owners[id(tensor)], gradient)
        distance = _distance(tensor.dtype, magnitude)
        if update is not None and magnitude > 0 and update < distance / 2:
            values = f"{str(tensor.dtype).removeprefix('torch.')} values near {magnitude:.1e} are {distance:.1e} apart"
            rounded.append((update / distance, f"a typical update is {update:.1e}, and {values}"))
    if not rounded:
        return ""
    which = "" if len(rounded) == len(chosen) else f" of {len(rounded)} of {len(chosen)} tensors"
    advice = "train a float32 copy, or raise the learning rate"
    return f"warning: most updates{which} will be rounded away: {min(rounded)[1]}; {advice}"


def _magnitudes(tensors: Sequence[torch.Tensor]) -> list[float]:
    norms: dict[int, float] = {}
    for device in {tensor.device for tensor in tensors}:
        there = [tensor for tensor in tensors if tensor.device == device]
        with torch.no_grad():
            copy = HostCopy(torch.stack(multi_tensor_norms([tensor.detach() for tensor in there], torch.float32)))
        copy.wait()
        norms |= zip(map(id, there), copy.values())
    return [norms[id(tensor)] / math.sqrt(tensor.numel()) for tensor in tensors]


def _update(optimizer: Optimizer, group: Mapping[str, Any], gradient: float | None) -> float | None:
    """Return about how far a step moves an element; None if that is unknown."""
    rate = group.get("lr")
    if isinstance(rate, torch.Tensor):
        rate = rate.item() if rate.device.type == "cpu" else None
    if rate is None:
        return None
    names = {base.__name__ for base in type(optimizer).__mro__}
    if names & set(_STEP_IS_RATE):
        return float(rate)
    if "SGD" not in names or gradient is None:
        return None
    return float(rate) * gradient / max(1e-3, 1 - (group.get("momentum") or 0.0))


def _distance(dtype: torch.dtype, magnitude: float) -> float:
    """Return the distance from a value of this magnitude to the next one."""
    limits = torch.finfo(dtype)
    exponent = math.floor(math.log2(magnitude)) if magnitude > 0 else 0
    return float(limits.eps) * max(2.0**exponent, float(limits.tiny))
