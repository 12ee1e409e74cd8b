"""Whether tensors hold NaN or Inf, looked at within a time limit. Any thread; only where looking makes no device wait."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from time import perf_counter

import torch

from gradtui.probe.torch_private.unwrap import plain_tensors

FINITE, BELOW, INF, NAN = "", "-Inf", "Inf", "NaN"
"""What a tensor holds, the worst of it: nothing of the kind, only negative infinity, infinity, NaN."""

_ORDER = (FINITE, BELOW, INF, NAN)


class Look:
    """Looks at tensors until `seconds` are over; from then on it answers None: not known.

    Negative infinity is told apart, because scripts use it on purpose: an attention mask, the logarithm of zero.
    """

    def __init__(self, seconds: float) -> None:
        self._deadline = perf_counter() + seconds
        self._known: dict[tuple[Hashable, ...], str | None] = {}

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return perf_counter() > self._deadline

    def at(self, tensor: torch.Tensor) -> str | None:
        """What a tensor holds; None where that cannot be told, or would make a device wait."""
        found = FINITE
        for plain in plain_tensors(tensor):
            kind = self._at_plain(plain)
            if kind is None:
                return None
            found = max(found, kind, key=_ORDER.index)
        return found

    def _at_plain(self, tensor: torch.Tensor) -> str | None:
        if tensor.device.type != "cpu" or self.is_over:
            return None
        if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
            return FINITE
        # Of the same storage: `x[::2]` and `x[:n]` differ in nothing but their strides.
        key = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride())  # noqa: SLF001
        if key not in self._known:
            self._known[key] = _kind(tensor)
        return self._known[key]


def worst(kinds: Iterable[str]) -> str:
    """NaN before Inf before negative infinity."""
    return max(kinds, key=_ORDER.index, default=FINITE)


def kind_of(value: float) -> str:
    """What a single number is."""
    if math.isfinite(value):
        return FINITE
    return NAN if math.isnan(value) else INF if value > 0 else BELOW


def _kind(tensor: torch.Tensor) -> str | None:
    with torch.no_grad():
        real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        try:
            # Passes NaN on, and reads ten times as fast as `isfinite`.
            smallest, largest = torch.aminmax(real.detach())
        except RuntimeError:
            # There are types it does not know, such as those of 8 bits.
            return None
        low, high = float(smallest), float(largest)
    return worst((kind_of(low), kind_of(high)))
