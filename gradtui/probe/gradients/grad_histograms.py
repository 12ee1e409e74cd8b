"""Compute histograms of watched gradients at sampled steps, for the parameters that the user has selected.

Each bin is a power of two, read from the exponent (`torch.frexp`), so nothing is rounded. Half precision is widened piece by
piece. The work per step is bounded: at most `MAX_ELEMENTS` over all watched parameters, and larger gradients are subsampled.
A device uses one asynchronous copy that is polled (not yet confirmed on a device). Runs on the training thread.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch

from gradtui.probe.gradients.grad_norms import plain_gradient, unscaled, would_wait
from gradtui.probe.gradients.norm_range import in_memory_order
from gradtui.probe.model import ModuleTree
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.private_names import has_values
from gradtui.protocol.measurements import BINS, LOWEST, MAX_WATCHED, GradientHistogram

MAX_ELEMENTS = 1 << 20
"""Maximum number of elements per sampled step, shared evenly; a gradient with more than its share is subsampled."""
SAMPLE_SHARE = 4
"""The subsample has 1/`SAMPLE_SHARE` of the share: elements far apart cost more than adjacent ones."""
_PIECE = 1 << 16
_RING = 4
"""Maximum number of histogram copies under way on a device; at this number the next step is not sampled."""
_SMALLER, _FIRST, _LARGER, _ZERO, _NAN, _INF = 0, 1, BINS + 1, BINS + 2, BINS + 3, BINS + 4
_KINDS = BINS + 5
"""Kinds: below the first bin, the bins, above the last bin, zero, NaN, Inf. The count of positive elements follows."""

_Described = tuple[int, int, int, int, bool]
"""Parameter index, number of elements, of stored and of sampled elements, and whether the gradient is a shard."""


class GradHistograms:
    """Computes histograms of the watched gradients. `deliver` receives the step and its histograms when they arrive."""

    def __init__(self, deliver: Callable[[int, tuple[GradientHistogram, ...]], None]) -> None:
        self.dropped = 0
        """Number of steps not sampled because the device had not finished earlier histograms."""
        self._deliver = deliver
        self._paths: tuple[str, ...] = ()
        self._indices: frozenset[int] | None = None
        self._requested = 0
        self.under_way: deque[tuple[int, list[_Described], HostCopy]] = deque()
        """The histograms that have not arrived from the device."""

    @property
    def is_requested(self) -> bool:
        """Whether the user has begun to watch parameters and waits for a first histogram."""
        return self._requested > 0

    def watch(self, paths: tuple[str, ...], round_length: int) -> None:
        """Watch these parameters instead of others. The next measured steps, one round of them, are always sampled."""
        self._paths, self._indices = paths[:MAX_WATCHED], None
        self._requested = round_length if paths else 0

    def indices(self, tree: ModuleTree) -> frozenset[int]:
        """Return the indices of the watched parameters. Any name of a tied parameter matches."""
        if self._indices is None:
            wanted = set(self._paths)
            found = (at for at, info in enumerate(tree.parameters) if wanted and not wanted.isdisjoint(info.names))
            self._indices = frozenset(found)
        return self._indices

    def tree_changed(self) -> None:
        """Discard everything under way: parameters have new indices."""
        self._indices = None
        self.under_way.clear()

    def before_step(self, step: int, applied: Sequence[tuple[int, torch.Tensor]], scale: torch.Tensor | None) -> None:
        """Compute histograms of the watched parameters in `applied`: (index, parameter) pairs that `step` updates.

        `scale` is a loss scaler's factor that is still in the gradients.
        """
        self._requested = max(0, self._requested - 1)
        self.poll()
        chosen = [(at, each.grad) for at, each in applied if at in (self._indices or ()) and each.grad is not None]
        if not chosen:
            return
        if len(self.under_way) >= _RING:
            self.dropped += 1
            return
        share = MAX_ELEMENTS // len(chosen)
        described: list[_Described] = []
        counted: list[torch.Tensor] = []
        with torch.no_grad():
            for at, gradient in chosen:
                if (sampled := _sampled(gradient, share)) is not None:
                    rows, stored, elements = sampled
                    described.append((at, elements, stored, rows.shape[0], hasattr(gradient, "to_local")))
                    counted.append(_counts(rows, scale))
            if not counted:
                return
            home = next((each.device for each in counted if not each.is_cpu), counted[0].device)
            copy = HostCopy(torch.cat([each.to(home, non_blocking=True) for each in counted]))
        self.under_way.append((step, described, copy))
        self.poll()

    def poll(self) -> None:
        """Deliver the histograms that a device has finished. Never waits."""
        while self.under_way and self.under_way[0][2].is_there:
            step, described, copy = self.under_way.popleft()
            self._deliver(step, tuple(_histograms(described, copy.values())))


def _sampled(gradient: torch.Tensor, share: int) -> tuple[torch.Tensor, int, int] | None:
    """Return the elements to count, and the numbers of stored elements and of all elements; None if there are none.

    Complex elements are rows of two numbers.
    """
    if would_wait(gradient) or not has_values(gradient):
        return None
    plain = plain_gradient(gradient)
    if not plain.numel():
        return None
    flat = in_memory_order(plain)
    rows = flat.view(-1, 2) if gradient.is_complex() else flat.view(-1)
    stored = rows.shape[0]
    # Of a shard, only the local elements count. Elements that a sparse gradient does not store are zero.
    elements = stored if gradient.layout is torch.strided else gradient.numel()
    if stored > share:
        rows = rows[:: _stride(stored, max(1, share // SAMPLE_SHARE))]
    return rows, stored, elements


def _stride(count: int, wanted: int) -> int:
    """Return the stride of the subsample. It does not divide the size: else all elements would come from the same columns."""
    stride = -(-count // wanted)
    while math.gcd(stride, count) > 1:
        stride += 1
    return stride


def _counts(rows: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """Return the count of each kind, followed by the count of positive elements: `_KINDS + 1` integers."""
    counts: list[torch.Tensor] = []
    for piece in torch.split(rows, _PIECE):
        values = piece if piece.dtype in (torch.float32, torch.float64) else piece.float()
        if values.dim() == 2:
            values = torch.hypot(values[:, 0], values[:, 1])
        if scale is not None:
            values = unscaled(values, scale)
        kinds = _kinds(values)
        # On a device `bincount` waits, and `histc` raises an error under deterministic algorithms.
        of_each = torch.bincount(kinds, minlength=_KINDS) if kinds.is_cpu else by_sorting(kinds)
        counts.append(torch.cat([of_each, torch.count_nonzero(values > 0).view(1)]))
    return torch.stack(counts).sum(0)


def _kinds(values: torch.Tensor) -> torch.Tensor:
    # |g| = m * 2**e with 1/2 <= m < 1, so the bin of |g| begins at 2**(e - 1).
    kinds = (torch.frexp(values).exponent - (LOWEST + 1) + _FIRST).clamp_(_SMALLER, _LARGER)
    # `frexp` defines no exponent for zero, Inf and NaN.
    kinds.masked_fill_(values == 0, _ZERO)
    kinds.masked_fill_(values.isinf(), _INF)
    return kinds.masked_fill_(values.isnan(), _NAN)


def by_sorting(kinds: torch.Tensor) -> torch.Tensor:
    """Return the count of each kind, without waiting for a device and with the same result under deterministic algorithms."""
    ends = torch.arange(1, _KINDS + 1, device=kinds.device, dtype=kinds.dtype)
    below = torch.searchsorted(kinds.sort().values, ends)
    return torch.diff(below, prepend=below.new_zeros(1))


def _histograms(described: Sequence[_Described], values: Sequence[int]) -> Iterator[GradientHistogram]:
    for index, (at, elements, stored, seen, is_shard) in enumerate(described):
        row = values[index * (_KINDS + 1) : (index + 1) * (_KINDS + 1)]
        absent = elements - stored
        if seen < stored:
            # Elements that are not stored are zero without sampling, and must not outweigh the subsample.
            absent = absent * seen // stored
        yield GradientHistogram(
            parameter=at,
            counts=tuple(row[_FIRST:_LARGER]),
            smaller=row[_SMALLER],
            larger=row[_LARGER],
            zeros=row[_ZERO] + absent,
            nan=row[_NAN],
            inf=row[_INF],
            positive=row[_KINDS],
            seen=seen + absent,
            elements=elements,
            is_shard=is_shard,
        )
