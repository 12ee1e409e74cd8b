"""Compute L2 norms that are right over the whole range of their dtype.

The sum of squares of a float32 tensor, in which torch computes norms, loses elements below 3.7e-23 and overflows above 1.8e19.
float64 holds these squares. The squares of float64 overflow and underflow too, so such a tensor is divided by its largest
magnitude first. https://en.wikipedia.org/wiki/Single-precision_floating-point_format has the limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from gradtui.probe.memory import piece_bytes

_TINY = 1e-12
"""A float32 norm of at least this much is right: even if each of a billion elements has lost a square of 1.2e-38, the smallest
normal number, that is less than 1e-5 of the norm."""
_TINY_DOUBLE = 1e-140
"""The same for the result of `wide_norm` on a float64 tensor."""


def is_doubtful(norms: Sequence[float]) -> bool:
    """Return whether any of these norms may be wrong: tiny ones, and infinite ones. NaN is not: an element is NaN."""
    return bool(norms) and not (min(norms) >= _TINY and max(norms) < math.inf) and not all(map(_is_sure, norms))


def _is_sure(norm: float) -> bool:
    return norm != norm or _TINY <= norm < math.inf


def exact_norm(tensor: torch.Tensor, norm: float) -> float:
    """Return the norm of a dense real tensor on the CPU, given its doubtful `norm`. Zero means that every element is zero."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return norm
    smallest, largest = (float(each) for each in torch.aminmax(tensor))
    magnitude = max(-smallest, largest)
    if magnitude == 0:
        return 0.0
    if not math.isfinite(magnitude):
        return norm
    wide = float(wide_norm(tensor))
    if tensor.dtype is not torch.float64 or _TINY_DOUBLE <= wide < math.inf:
        return wide
    return float(torch.linalg.vector_norm(tensor / magnitude)) * magnitude


def wide_norm(tensor: torch.Tensor) -> torch.Tensor:
    """Return the norm of a real tensor as a 0-D tensor on its device, right where float32 squares are not.

    The squares are in float64; MPS devices do not have it. Pieces are converted one after the other, so that this takes little
    memory. Never waits for the device.
    """
    flat = in_memory_order(tensor).view(-1)
    if tensor.device.type == "mps":
        return norm_by_magnitude(flat)
    return _combined([torch.linalg.vector_norm(piece.double()) for piece in _pieces(flat)])


def norm_by_magnitude(flat: torch.Tensor) -> torch.Tensor:
    """Return the norm of a 1-D tensor as a float32 number, from squares of its elements over the largest magnitude."""
    smallest, largest = torch.aminmax(flat)
    limits = torch.finfo(torch.float32)
    magnitude = torch.maximum(-smallest, largest).float().clamp(limits.tiny, limits.max)
    return _combined([torch.linalg.vector_norm(piece.float() / magnitude) for piece in _pieces(flat)]) * magnitude


def _pieces(flat: torch.Tensor) -> Sequence[torch.Tensor]:
    return torch.split(flat, max(1, piece_bytes(flat.device, 8 * flat.numel()) // 8))


def _combined(norms: list[torch.Tensor]) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same elements with the largest stride first, since norms do not depend on order. Copies only if necessary."""
    if tensor.is_contiguous():
        return tensor
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).contiguous()
