"""Check tensors for NaN or Inf within a time limit. Any thread; only where reading makes no device wait."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from time import perf_counter

import torch

from gradtui.probe.torch_private.unwrap import plain_tensors

FINITE, BELOW, INF, NAN = "", "-Inf", "Inf", "NaN"
"""The worst value that a tensor holds: all finite, only negative infinity, infinity, NaN."""

_ORDER = (FINITE, BELOW, INF, NAN)


class NonFiniteCheck:
    """Checks tensors for `seconds`; after that every result is None, for unknown.

    Negative infinity is a separate kind, because scripts use it on purpose: an attention mask, the logarithm of zero.
    """

    def __init__(self, seconds: float) -> None:
        self._deadline = perf_counter() + seconds
        self._known: dict[tuple[Hashable, ...], str | None] = {}

    @property
    def is_over(self) -> bool:
        """Whether the time limit has passed."""
        return perf_counter() > self._deadline

    def at(self, tensor: torch.Tensor) -> str | None:
        """Return what a tensor holds; None if that is unknown or would make a device wait."""
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
        # Views of one storage, such as `x[::2]` and `x[:n]`, may differ only in their strides.
        key = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride())  # noqa: SLF001
        if key not in self._known:
            self._known[key] = _kind(tensor)
        return self._known[key]


def worst(kinds: Iterable[str]) -> str:
    """Return the worst of these kinds: NaN before Inf before negative infinity."""
    return max(kinds, key=_ORDER.index, default=FINITE)


def kind_of(value: float) -> str:
    """Return the kind of a single number."""
    if math.isfinite(value):
        return FINITE
    return NAN if math.isnan(value) else INF if value > 0 else BELOW


def _kind(tensor: torch.Tensor) -> str | None:
    with torch.no_grad():
        real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        try:
            # `aminmax` propagates NaN, and is ten times as fast as `isfinite`.
            smallest, largest = torch.aminmax(real.detach())
        except RuntimeError:
            # Some dtypes are not supported, such as 8-bit ones.
            return None
        low, high = float(smallest), float(largest)
    return worst((kind_of(low), kind_of(high)))
