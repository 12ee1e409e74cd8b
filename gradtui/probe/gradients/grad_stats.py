"""Compute gradient statistics and update-to-weight ratios at sampled steps, for some of the parameters in each.

The update-to-weight ratio is the L2 norm of what the step adds to a parameter over that of the parameter. It is computed from
at most `SAMPLE` elements: keeping all elements from before the step would take as much memory as the model. Of a parameter
whose rows commands have frozen, all figures are of the rows that train (`trained_part`). This module only reads; a device
uses one asynchronous copy that is polled (checked on a simulated device only). Runs on the training thread.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from operator import attrgetter, itemgetter

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.gradients.grad_norms import norm_of, plain_gradient, wide, would_wait
from gradtui.probe.gradients.norm_range import in_memory_order
from gradtui.probe.memory import devices_with_room, piece_bytes
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.own_hooks import trained_part
from gradtui.probe.torch_private.private_names import has_values
from gradtui.protocol.vocabulary import GradientStats

MAX_PARAMETERS = 64
"""Maximum number of parameters per sampled step; the next sampled step continues with those that follow."""
MAX_ELEMENTS = 1 << 26
"""Maximum number of elements per sampled step, exceeded only if a single parameter has more."""
SAMPLE = 512
_SMALL = 4_096
"""Maximum number of elements of a parameter that is processed together with others."""
_RING = 8
"""Maximum number of samples under way on a device; at this number the next step is not sampled."""
_HALF = (torch.float16, torch.bfloat16)


@dataclass
class _Pending:
    """Statistics of some parameters at one step, under way to the host. gradtui keeps nothing on the device."""

    step: int
    parameters: list[tuple[int, int, int]]
    """Parameter index, number of elements, and number of elements that the gradient stores."""
    numbers: HostCopy
    """One column per parameter, stored row by row."""
    before: HostCopy | None
    """Concatenated samples of all parameters; None if the step was already over."""
    after: HostCopy | None = None

    @property
    def is_there(self) -> bool:
        return self.numbers.is_there and all(copy.is_there for copy in (self.before, self.after) if copy is not None)


class GradStats:
    """Computes statistics before a step and completes them after it. `deliver` receives the step and its statistics."""

    def __init__(self, deliver: Callable[[int, tuple[GradientStats, ...]], None]) -> None:
        self.dropped = 0
        """Number of steps not sampled because the device had not finished earlier samples."""
        self._deliver = deliver
        self._next = 0
        """The parameter index to continue with."""
        self._open: tuple[_Pending, list[torch.Tensor]] | None = None
        self.under_way: deque[_Pending] = deque()
        """The samples that have not arrived from the device."""

    @property
    def is_open(self) -> bool:
        """Whether statistics of the current step are waiting for its end."""
        return self._open is not None

    def tree_changed(self) -> None:
        """Discard everything under way: parameters have new indices."""
        self._next, self._open = 0, None
        self.under_way.clear()

    def before_step(
        self,
        step: int,
        applied: Sequence[tuple[int, torch.Tensor]],
        scale: torch.Tensor | None,
        has_run: bool,
        always: Set[int] = frozenset(),
    ) -> None:
        """Sample some of the parameters, given as (index, parameter), whose gradients are applied as `step`.

        `scale` is a loss scaler's factor that is still in the gradients. `has_run` means that the step is over. The parameters
        whose indices are in `always` are sampled every time.
        """
        self._open = None
        self.poll()
        if len(self.under_way) >= _RING:
            self.dropped += 1
            return
        groups = _alike_together(self._chosen(applied, always))
        if not groups:
            return
        chosen = [each for group in groups for each in group]
        parameters = [parameter for _, parameter in chosen]
        with torch.no_grad():
            numbers = HostCopy(_table(groups, scale))
            before = None if has_run else HostCopy(_samples(parameters))
        sizes = [(index, _weights(each).numel(), _stored(each).numel()) for index, each in chosen]
        self._open = _Pending(step, sizes, numbers, before), parameters

    def after_step(self) -> None:
        """Complete the statistics after the step, whether it was executed or skipped."""
        if self._open is None:
            return
        (pending, parameters), self._open = self._open, None
        # The step may have used up the free memory: an optimizer creates its state in its first step.
        if pending.before is not None and all(devices_with_room(parameters).values()):
            with torch.no_grad():
                pending.after = HostCopy(_samples(parameters))
        self.under_way.append(pending)
        self.poll()

    def poll(self) -> None:
        """Deliver the statistics that a device has finished. Never waits."""
        while self.under_way and self.under_way[0].is_there:
            pending = self.under_way.popleft()
            self._deliver(pending.step, tuple(sorted(_figures(pending), key=attrgetter("parameter"))))

    def _chosen(self, applied: Sequence[tuple[int, torch.Tensor]], always: Set[int]) -> list[tuple[int, torch.Tensor]]:
        """Return the parameters in `always`, followed by those whose turn it is, round-robin."""
        chosen: list[tuple[int, torch.Tensor]] = []
        elements = 0
        for index, parameter in _in_turn(applied, self._next, always):
            # Check in this order and only as far as necessary: there may be many parameters, of which few are sampled.
            if not _has_statistics(parameter):
                continue
            elements += parameter.numel()
            if chosen and elements > MAX_ELEMENTS:
                break
            chosen.append((index, parameter))
            if len(chosen) == MAX_PARAMETERS:
                break
        if chosen and chosen[-1][0] not in always:
            self._next = chosen[-1][0] + 1
        return chosen


def _in_turn(
    applied: Sequence[tuple[int, torch.Tensor]], begin: int, always: Set[int]
) -> Iterator[tuple[int, torch.Tensor]]:
    order = sorted(applied, key=itemgetter(0))
    if always:
        yield from (each for each in order if each[0] in always)
        order = [each for each in order if each[0] not in always]
    turn = bisect_left([index for index, _ in order], begin)
    yield from order[turn:]
    yield from order[:turn]


def _has_statistics(parameter: torch.Tensor) -> bool:
    gradient = parameter.grad
    if gradient is None or gradient.is_meta or parameter.layout is not torch.strided or would_wait(gradient):
        return False
    if type(gradient) is not torch.Tensor and not has_values(gradient):
        return False
    return plain_gradient(gradient).numel() > 0


def _stored(parameter: torch.Tensor) -> torch.Tensor:
    gradient = parameter.grad
    return parameter.detach()[:0] if gradient is None else trained_part(parameter, plain_gradient(gradient))


def _weights(parameter: torch.Tensor) -> torch.Tensor:
    return trained_part(parameter, plain_gradient(parameter.detach()))


def _joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return one 1-D tensor, on the first device that is not the CPU if there is one."""
    home = next((part.device for part in parts if not part.is_cpu), parts[0].device)
    kind = wide(home)
    if len({(part.device, part.dtype) for part in parts}) == 1:
        return torch.cat([part if part.dim() == 1 else part.reshape(-1) for part in parts]).to(kind)
    return torch.cat([part.to(home, kind, non_blocking=True).reshape(-1) for part in parts])


def _alike_together(chosen: list[tuple[int, torch.Tensor]]) -> list[list[tuple[int, torch.Tensor]]]:
    """Group the parameters that are computed together. Reordering their numbers on a device would wait for it."""
    groups: dict[object, list[tuple[int, torch.Tensor]]] = {}
    for index, parameter in chosen:
        kind = parameter.device, parameter.dtype, _is_small(parameter)
        groups.setdefault(kind, []).append((index, parameter))
    return list(groups.values())


def _table(groups: list[list[tuple[int, torch.Tensor]]], scale: torch.Tensor | None) -> torch.Tensor:
    """Return the rows of `_numbers` concatenated. Stacking by row takes far fewer operations."""
    columns = []
    for group in groups:
        members = [parameter for _, parameter in group]
        numbers = (
            _numbers_at_once(members)
            if _is_small(members[0])
            else [torch.stack(row) for row in zip(*map(_numbers, members))]
        )
        columns.append(_joined(numbers).view(_ROWS, -1))
    home = next((part.device for part in columns if not part.is_cpu), columns[0].device)
    table = torch.cat([part.to(home, wide(home), non_blocking=True) for part in columns], dim=1)
    if scale is not None:
        table[_SCALED] /= scale.to(table.device, table.dtype, non_blocking=True)
    return table.reshape(-1)


_ROWS = 7
_SCALED = slice(2, 6)
"""Rows of the table that contain a loss scaler's factor."""


def _numbers(parameter: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return counts of nonzero and non-finite gradient elements; gradient min, max, mean, norm; and the parameter's norm."""
    gradient, weights = _stored(parameter), _weights(parameter)
    mean = gradient.mean(dtype=torch.float32 if gradient.dtype in _HALF else None)
    return *_counts(gradient), *torch.aminmax(gradient), mean, norm_of(gradient), norm_of(weights)


def _is_small(parameter: torch.Tensor) -> bool:
    """Return whether launching the operations costs more than running them. CPU only: segment lengths come from the host."""
    stored = _stored(parameter)
    return stored.is_cpu and parameter.is_cpu and max(stored.numel(), parameter.numel()) <= _SMALL


def _numbers_at_once(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the `_numbers` of small parameters by row, in float64, with as many operations for all as for one."""
    gradients, lengths = _end_to_end([_stored(each) for each in parameters])
    weights, weight_lengths = _end_to_end([_weights(each) for each in parameters])

    def of_each(values: torch.Tensor, how: str) -> torch.Tensor:
        reduced: torch.Tensor = torch.segment_reduce(values.to(torch.float64), how, lengths=lengths)
        return reduced

    return [
        of_each(gradients != 0, "sum"),
        of_each(gradients - gradients != 0, "sum"),
        of_each(gradients, "min"),
        of_each(gradients, "max"),
        of_each(gradients, "sum") / lengths,
        of_each(gradients.square(), "sum").sqrt(),
        torch.segment_reduce(weights.square(), "sum", lengths=weight_lengths).sqrt(),
    ]


def _end_to_end(tensors: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([each.numel() for each in tensors], dtype=torch.int64, device="cpu")
    return _joined([in_memory_order(each) for each in tensors]), lengths


def _counts(gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how many elements are nonzero, and how many are NaN or infinite (`x - x` is not zero).

    The norm of order 0 counts in one reduction. `count_nonzero` would first create a number of 8 bytes for every element on a
    device. Above 2**24 the counts are rounded to the 24 bits of a float.
    """
    flat = in_memory_order(gradient).view(-1)
    pieces = torch.split(flat, max(1, piece_bytes(flat.device, flat.nbytes) // flat.element_size()))
    not_finite = [_nonzero(piece - piece) for piece in pieces]
    return _nonzero(flat), not_finite[0] if len(pieces) == 1 else torch.stack(not_finite).sum()


def _nonzero(flat: torch.Tensor) -> torch.Tensor:
    counted: torch.Tensor = torch.linalg.vector_norm(flat, 0, dtype=torch.float32 if flat.dtype in _HALF else None)
    return counted


def _samples(parameters: list[torch.Tensor]) -> torch.Tensor:
    """Return at most `SAMPLE` evenly spaced elements of each parameter, concatenated."""
    parts = []
    for parameter in parameters:
        flat = in_memory_order(_weights(parameter)).view(-1)
        parts.append(flat[:: -(-flat.numel() // SAMPLE)] if flat.numel() > SAMPLE else flat)
    return _joined(parts)


def _figures(pending: _Pending) -> Iterator[GradientStats]:
    count = len(pending.parameters)
    rows = zip(*pending.numbers.tensor().view(-1, count).tolist())
    ratios = _ratios(pending)
    for (index, elements, stored), row, ratio in zip(pending.parameters, rows, ratios):
        nonzero, not_finite, smallest, largest, mean, norm, weight = row
        bad = math.isnan(smallest) or math.isnan(largest)
        yield GradientStats(
            parameter=index,
            max_abs=math.nan if bad else max(abs(smallest), abs(largest)),
            mean=mean,
            std=math.sqrt(max(0.0, norm * norm / stored - mean * mean)) if math.isfinite(norm) else math.nan,
            zero_fraction=max(0.0, 1 - nonzero / elements),
            not_finite=int(not_finite),
            weight_norm=weight,
            update_ratio=ratio,
            ratio_is_exact=elements <= SAMPLE,
            elements=elements,
            stored=stored,
        )


def _ratios(pending: _Pending) -> list[float | None]:
    if pending.before is None or pending.after is None:
        return [None] * len(pending.parameters)
    lengths = [-(-elements // -(-elements // SAMPLE)) for _, elements, _ in pending.parameters]
    before, after = pending.before.tensor(), pending.after.tensor()
    # Both copies are on the host. Process them together: one conversion instead of two per parameter.
    squares = torch.cat((before, after - before)).to(torch.float64).square()
    sizes = torch.tensor(lengths + lengths, dtype=torch.int64, device="cpu")
    norms = torch.segment_reduce(squares, "sum", lengths=sizes).sqrt().view(2, -1).tolist()
    return [moved / weight if weight > 0 else None for weight, moved in zip(*norms)]
