"""How the elements of watched gradients are spread: a histogram of each on examined steps, for the parameters a viewer chose.

A bin is a power of two, read from the exponent (`torch.frexp`), so nothing is rounded. Half precision is widened piece by
piece. What one step looks at is bounded: `MAX_ELEMENTS` of all watched parameters together, of larger ones a sample. On a
device by one asynchronous copy that is polled (not yet confirmed on a device). Runs on the training thread.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch

from gradtui.probe.gradients.grad_norms import in_memory_order, plain_gradient, unscaled
from gradtui.probe.gradients.sparse_gradients import would_wait
from gradtui.probe.model import ModuleTree
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.protocol.histogram import BINS, LOWEST, MAX_WATCHED, GradientHistogram

MAX_ELEMENTS = 1 << 20
"""Elements that are looked at in one step, shared out evenly; a gradient with more than its share is sampled."""
SAMPLE_SHARE = 4
"""A sample takes this part of the share: elements far apart cost more than neighbours."""
_PIECE = 1 << 16
_RING = 4
"""Looks that may be under way on a device; with so many, the next step is not looked at."""
_SMALLER, _FIRST, _LARGER, _ZERO, _NAN, _INF = 0, 1, BINS + 1, BINS + 2, BINS + 3, BINS + 4
_KINDS = BINS + 5
"""Below the first bin, the bins, beyond the last, and what has no size. After them the positive ones are counted."""

Deliver = Callable[[int, tuple[GradientHistogram, ...]], None]
"""Called with a step and the histograms that were taken in it."""

_Described = tuple[int, int, int, int, bool]
"""Place in the tree, elements, stored and seen ones, and whether it is a shard."""


class GradHistograms:
    """Takes histograms of what is watched and delivers them when they have arrived."""

    def __init__(self, deliver: Deliver) -> None:
        self.dropped = 0
        """Steps not looked at because the device had not finished the looks before."""
        self._deliver = deliver
        self._paths: tuple[str, ...] = ()
        self._places: frozenset[int] | None = None
        self._asked = 0
        self._under_way: deque[tuple[int, list[_Described], HostCopy]] = deque()

    @property
    def is_asked(self) -> bool:
        """Whether somebody has begun to watch and waits for a first look."""
        return self._asked > 0

    @property
    def is_under_way(self) -> bool:
        """Whether there is anything to poll for."""
        return bool(self._under_way)

    def watch(self, paths: tuple[str, ...], round_length: int) -> None:
        """Watch these parameters in place of others; the next measured steps, a round of them, look in any case."""
        self._paths, self._places = paths[:MAX_WATCHED], None
        self._asked = round_length if paths else 0

    def places(self, tree: ModuleTree) -> frozenset[int]:
        """Where in the tree the watched parameters are; a name of a tied one counts too."""
        if self._places is None:
            wanted = set(self._paths)
            found = (at for at, info in enumerate(tree.parameters) if wanted and not wanted.isdisjoint(info.names))
            self._places = frozenset(found)
        return self._places

    def tree_changed(self) -> None:
        """Parameters have other places now."""
        self._places = None
        self._under_way.clear()

    def before_step(self, step: int, applied: Sequence[tuple[int, torch.Tensor]], scale: torch.Tensor | None) -> None:
        """Look at the watched ones of the parameters, given as (place, parameter), whose gradients are applied as `step`.

        `scale` is a loss scaler's factor that is still in the gradients.
        """
        self._asked = max(0, self._asked - 1)
        self.poll()
        chosen = [(at, each.grad) for at, each in applied if at in (self._places or ()) and each.grad is not None]
        if not chosen:
            return
        if len(self._under_way) >= _RING:
            self.dropped += 1
            return
        share = MAX_ELEMENTS // len(chosen)
        described: list[_Described] = []
        counted: list[torch.Tensor] = []
        with torch.no_grad():
            for at, gradient in chosen:
                looked = _sizes(gradient, share)
                if looked is None:
                    continue
                sizes, stored, elements = looked
                is_shard = hasattr(gradient, "to_local")
                described.append((at, elements, stored, sizes.shape[0], is_shard))
                counted.append(_counts(sizes, scale))
            if not counted:
                return
            home = next((each.device for each in counted if not each.is_cpu), counted[0].device)
            copy = HostCopy(torch.cat([each.to(home, non_blocking=True) for each in counted]))
        self._under_way.append((step, described, copy))
        self.poll()

    def poll(self) -> None:
        """Deliver what a device has finished; never waits."""
        while self._under_way and self._under_way[0][2].is_there:
            step, described, copy = self._under_way.popleft()
            self._deliver(step, tuple(_histograms(described, copy.values())))


def _sizes(gradient: torch.Tensor, share: int) -> tuple[torch.Tensor, int, int] | None:
    """The elements to look at (of complex ones a row of two each), how many are stored and how many there are.

    None where there are none.
    """
    if would_wait(gradient):
        return None
    plain = plain_gradient(gradient)
    if not plain.numel():
        return None
    flat = in_memory_order(plain)
    rows = flat.view(-1, 2) if gradient.is_complex() else flat.view(-1)
    stored = rows.shape[0]
    # Of a shard only what is here counts; what a sparse gradient does not store is zero.
    elements = stored if gradient.layout is torch.strided else gradient.numel()
    if stored > share:
        rows = rows[:: _stride(stored, max(1, share // SAMPLE_SHARE))]
    return rows, stored, elements


def _stride(count: int, wanted: int) -> int:
    """How far apart the elements of a sample are: no divisor of the whole, or they would all be of the same columns."""
    stride = -(-count // wanted)
    while math.gcd(stride, count) > 1:
        stride += 1
    return stride


def _counts(rows: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """How many are of each kind, and how many are positive: `_KINDS + 1` whole numbers."""
    total: torch.Tensor | None = None
    for piece in torch.split(rows, _PIECE):
        values = piece if piece.dtype in (torch.float32, torch.float64) else piece.float()
        if values.dim() == 2:
            values = torch.hypot(values[:, 0], values[:, 1])
        if scale is not None:
            values = unscaled(values, scale)
        counted = torch.cat([_of_each_kind(_kinds(values)), torch.count_nonzero(values > 0).view(1)])
        total = counted if total is None else total + counted
    assert total is not None
    return total


def _kinds(values: torch.Tensor) -> torch.Tensor:
    """The kind of each element."""
    # |g| = m * 2**e with 1/2 <= m < 1, so 2**(e - 1) is the power of two that it begins with.
    kinds = (torch.frexp(values).exponent - (LOWEST + 1) + _FIRST).clamp_(_SMALLER, _LARGER)
    # frexp says nothing of what has no exponent.
    kinds.masked_fill_(values == 0, _ZERO)
    kinds.masked_fill_(values.isinf(), _INF)
    return kinds.masked_fill_(values.isnan(), _NAN)


def _of_each_kind(kinds: torch.Tensor) -> torch.Tensor:
    # On a device bincount waits for it, and histc is refused under deterministic algorithms.
    return torch.bincount(kinds, minlength=_KINDS) if kinds.device.type == "cpu" else by_sorting(kinds)


def by_sorting(kinds: torch.Tensor) -> torch.Tensor:
    """How often each kind occurs, told without waiting for a device and the same under deterministic algorithms."""
    ends = torch.arange(1, _KINDS + 1, device=kinds.device, dtype=kinds.dtype)
    below = torch.searchsorted(kinds.sort().values, ends)
    return torch.diff(below, prepend=below.new_zeros(1))


def _histograms(described: Sequence[_Described], values: Sequence[int]) -> Iterator[GradientHistogram]:
    for place, (at, elements, stored, seen, is_shard) in enumerate(described):
        row = values[place * (_KINDS + 1) : (place + 1) * (_KINDS + 1)]
        absent = elements - stored
        if seen < stored:
            # What is not stored is known without looking, and must not outweigh a sample.
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
