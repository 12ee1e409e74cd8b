"""Detect half-precision parameters that are too coarse for the updates of their optimizer.

The values next to a value of magnitude w are about `eps * w` away. An update below half of that distance is rounded away at
every step. Computed on the training thread when the user unfreezes parameters, with one read of a few numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from gradtui.probe.model import ModuleTree
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.private_names import is_wrapper, multi_tensor_norms, operations_are_observed

_HALF = (torch.float16, torch.bfloat16)
_STEP_IS_RATE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")
"""PyTorch optimizers that change every element by about the learning rate, regardless of the size of its gradient."""


class _Rounded(NamedTuple):
    """A parameter whose typical update is rounded away."""

    shortage: float
    """How many times smaller the update is than half the distance to the next value."""
    update: float
    magnitude: float
    distance: float
    dtype: str


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
    rounded = []
    try:
        magnitudes = _magnitudes(owned)
    except RuntimeError:
        # Possibly no memory on the device. The command has been applied anyway.
        return ""
    for tensor, magnitude in zip(owned, magnitudes):
        update = _update(*owners[id(tensor)], gradient)
        distance = _distance(tensor.dtype, magnitude)
        if update is not None and magnitude > 0 and update < distance / 2:
            name = str(tensor.dtype).removeprefix("torch.")
            rounded.append(_Rounded(distance / 2 / update if update else math.inf, update, magnitude, distance, name))
    return _words(rounded, len(chosen)) if rounded else ""


def _words(rounded: Sequence[_Rounded], count: int) -> str:
    worst = max(rounded)
    which = "" if len(rounded) == count else f" of {len(rounded)} of {count} tensors"
    return (
        f"warning: most updates{which} will be rounded away: a typical update is {worst.update:.1e}, and {worst.dtype} values "
        f"near {worst.magnitude:.1e} are {worst.distance:.1e} apart; train a float32 copy, or raise the learning rate"
    )


def _magnitudes(tensors: Sequence[torch.Tensor]) -> list[float]:
    """Return the root mean square of each tensor, with one read per device."""
    found: dict[int, float] = {}
    for device in {tensor.device for tensor in tensors}:
        there = [tensor for tensor in tensors if tensor.device == device]
        with torch.no_grad():
            copy = HostCopy(torch.stack(_norms(there)))
        copy.wait()
        found |= {id(tensor): norm / math.sqrt(tensor.numel()) for tensor, norm in zip(there, copy.values())}
    return [found[id(tensor)] for tensor in tensors]


def _norms(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return multi_tensor_norms([tensor.detach() for tensor in tensors], torch.float32)


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
