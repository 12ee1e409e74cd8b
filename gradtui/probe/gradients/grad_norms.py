"""Compute the gradient norms of a step: one multi-tensor norm per device and dtype, and one copy to the host.

These are L2 norms, `sqrt(sum |g|^2)` over all elements of a gradient, as `torch.nn.utils.clip_grad_norm_` computes them. Half
precision gradients accumulate in float32. On CUDA an asynchronous copy moves the stacked norms to pinned memory, and later
steps poll it. A step is skipped and counted while too many copies are under way (checked on a simulated device only).

The square of a float32 number below 1e-23 is zero, and above 1e19 infinite. A norm that may have suffered from this is computed
again, right over the whole range of its dtype: at once on the CPU, and from the next reading on elsewhere, because the host
learns of it only then (`norm_range.py`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.gradients.clipping import Clipping
from gradtui.probe.gradients.norm_range import exact_norm, in_memory_order, is_doubtful, wide_norm
from gradtui.probe.memory import piece_bytes
from gradtui.probe.model import IndexMapping
from gradtui.probe.steps import BatchPlace
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.private_names import multi_tensor_norms
from gradtui.system.no_collection import no_collection

_RING = 64
"""Maximum number of readings under way on a device. At this number the next step is not measured. Dropping the oldest reading
instead would mean that a script that runs further ahead of its device never receives one."""
_HALF = (torch.float16, torch.bfloat16)
_REAL = (torch.float32, torch.float64, *_HALF)
_STRIDED = torch.strided
_PIECE = 1 << 16
"""Elements per piece when the CPU sums squares."""
_LARGE = 1 << 22
"""Number of elements above which a gradient on a device has a kernel of its own. A multi-tensor kernel allocates, for every
tensor, 8 bytes for as many chunks of 65,536 elements as its largest tensor has."""


@dataclass(frozen=True)
class GradNormSample:
    """Norms and loss of one step. `norms` holds (parameter index, norm); `loss` is None if it was not a single number."""

    step: int
    total: float | None
    loss: float | None
    norms: list[tuple[int, float]]
    before_clipping: float | None = None
    """The total norm before the script clipped; None if it did not clip."""
    clipped_at: float | None = None
    """The maximum norm that the script clipped to."""
    is_applied: bool = True
    """False if the script may have changed the gradients between this reading and its update."""
    optimizer: int = -1
    """Index of the optimizer that applied the gradients; -1 where the script updates its parameters itself."""
    loss_of: str = ""
    """As in `StepFigures`."""
    absent: Sequence[int] = ()
    """Indices of the parameters that had no gradient."""
    batches: Sequence[BatchPlace] = ()
    """Where the batches of a step come from whose figures are of a device."""


@dataclass
class _UnderWay:
    step: int
    indices: list[int]
    absent: Sequence[int]
    deliver: Callable[[GradNormSample], None]
    is_clipped: bool
    clipped_at: float | None
    copy: HostCopy
    wide: frozenset[int]
    """Indices of the norms that were computed for the whole range."""


class GradNorms:
    """Measures the norms of given gradients and delivers readings as they become available. `loss` of a reading is None."""

    def __init__(self, deliver: Callable[[GradNormSample], None]) -> None:
        self.dropped = 0
        """Number of steps not measured because the device had not finished earlier readings."""
        self._deliver = deliver
        self._under_way: deque[_UnderWay] = deque()
        self._wide: set[int] = set()
        """On a device: indices of the parameters whose newest norm was doubtful."""

    def measure(
        self,
        step: int,
        gradients: Sequence[tuple[int, torch.Tensor]],
        scale: torch.Tensor | None = None,
        clipping: Clipping | None = None,
        absent: Sequence[int] = (),
        deliver: Callable[[GradNormSample], None] | None = None,
    ) -> bool:
        """Measure the gradients of `step`, given as (parameter index, gradient). Return whether a reading will be delivered.

        `scale` is the factor by which a loss scaler has multiplied the gradients, if the optimizer itself divides it out.
        `clipping` is the script's clipping call. Parameters with an index in `absent` have no gradient. `deliver` receives
        this reading, if it is not the function that receives the others.
        """
        if self._under_way:
            self.poll()
        if len(self._under_way) >= _RING:
            self.dropped += 1
            return False
        deliver = deliver if deliver is not None else self._deliver
        # Do not keep the total: it belongs to the script.
        clipped_at = clipping.threshold if clipping is not None else None
        with torch.no_grad():
            # Creating norms for thousands of gradients would trigger Python's collector, which would visit all objects
            # of the process.
            with no_collection():
                indices, tensors, norms = _norms(gradients, self._wide)
            if clipping is not None:
                norms.append([clipping.total.reshape(())])
            if not norms:
                return False
            # The only host copy of the step's norms.
            copy = HostCopy(_joined(norms, scale))
            if tensors and all(tensor.is_cpu for tensor in tensors) and copy.is_there:
                values = copy.values()
                _make_exact(values, tensors, scale)
                before = values.pop() if clipping is not None else None
                norms_of = [*zip(indices, values)]
                deliver(GradNormSample(step, total_norm(values), None, norms_of, before, clipped_at, absent=absent))
                return True
        wide = frozenset(self._wide)
        self._under_way.append(_UnderWay(step, indices, absent, deliver, clipping is not None, clipped_at, copy, wide))
        self.poll()
        return True

    def tree_changed(self, moved: IndexMapping) -> None:
        """Apply new parameter indices. A reading loses its norms if none of its parameters is still listed."""
        self._wide.clear()
        for reading in self._under_way:
            reading.indices = moved.of_indices(reading.indices) or []
            reading.absent = [*moved.parameter_set(reading.absent)]

    def poll(self) -> None:
        """Deliver the readings that a device has finished. Never waits."""
        while self._under_way and self._under_way[0].copy.is_there:
            ready = self._under_way.popleft()
            ready.deliver(self._reading(ready))

    def finish(self) -> None:
        """Deliver the remaining readings at the end of the run. May wait for the device."""
        if self._under_way:
            self._under_way[-1].copy.wait()
        self.poll()

    def _reading(self, ready: _UnderWay) -> GradNormSample:
        values = ready.copy.values()
        before = values.pop() if ready.is_clipped else None
        total = total_norm(values) if ready.indices else None
        norms = [*zip(ready.indices, values)]
        self._wide = {index for index, norm in norms if is_doubtful((norm,))} if is_doubtful(values) else set()
        if unknown := self._wide - ready.wide:
            # A tiny norm that was not computed for the whole range is unknown; an infinite one is reported as it is.
            norms = [(index, norm) for index, norm in norms if norm >= 1 or index not in unknown]
        return GradNormSample(ready.step, total, None, norms, before, ready.clipped_at, absent=ready.absent)


def _make_exact(values: list[float], tensors: list[torch.Tensor], scale: torch.Tensor | None) -> None:
    """Replace the norms of tensors on the CPU that may be wrong because of the range of squares."""
    if not is_doubtful(values):
        return
    factor = 1.0 if scale is None else 1 / float(scale)
    for position, (value, tensor) in enumerate(zip(values, tensors)):
        if is_doubtful((value,)):
            values[position] = exact_norm(tensor, value) * factor


def total_norm(norms: Sequence[float]) -> float:
    """Return the L2 norm of vectors with these norms; NaN if any is."""
    total = math.hypot(*norms)
    # `math.hypot` returns Inf if any argument is Inf, even if another is NaN.
    return math.nan if total == math.inf and any(map(math.isnan, norms)) else total


def _joined(lists: list[list[torch.Tensor]], scale: torch.Tensor | None) -> torch.Tensor:
    """Return all numbers as a 1-D tensor, divided by `scale`. Each list shares device and dtype.

    If all have one device and dtype, this is a single operation: on short steps each operation costs more than its numbers.
    """
    if scale is None and len({(each[0].device, each[0].dtype) for each in lists}) == 1:
        return torch.stack([value for each in lists for value in each] if len(lists) > 1 else lists[0])
    near = [each[0] for each in lists] + ([scale] if scale is not None else [])
    home = next((each.device for each in near if not each.is_cpu), near[0].device)
    stacked = [torch.stack(each).to(wide(each[0].device)) for each in lists]
    if scale is not None:
        stacked = [unscaled(part, scale) for part in stacked]
    return torch.cat([part.to(home, non_blocking=True) for part in stacked])


def unscaled(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return `values` divided by a loss scaler's factor.

    If the numbers are on the host and the factor is on a device, the result is on the device. A host copy of the factor would
    either be read before it arrives, or require waiting.
    """
    if values.is_cpu and not scale.is_cpu:
        values = values.to(scale.device, non_blocking=True)
    return values / scale.to(values.device, values.dtype, non_blocking=True)


def _norms(
    gradients: Sequence[tuple[int, torch.Tensor]], wide: set[int]
) -> tuple[list[int], list[torch.Tensor], list[list[torch.Tensor]]]:
    """Return parameter indices, tensors and, in the same order, norms in lists of one device and dtype each.

    `wide` are the indices of gradients on a device whose norms are computed for the whole range.
    """
    groups: dict[tuple[torch.device, torch.dtype, bool], tuple[list[int], list[torch.Tensor]]] = {}
    indices: list[int] = []
    tensors: list[torch.Tensor] = []
    norms: list[list[torch.Tensor]] = []
    for index, gradient in gradients:
        plain = gradient
        if type(gradient) is not torch.Tensor or gradient.layout is not _STRIDED or gradient.dtype not in _REAL:
            if would_wait(gradient):
                indices.append(index)
                tensors.append(gradient)
                norms.append([norm_of_repeated(gradient)])
                continue
            plain = plain_gradient(gradient)
        if index in wide and not plain.is_cpu:
            indices.append(index)
            tensors.append(plain)
            norms.append([wide_norm(plain)])
            continue
        key = plain.device, plain.dtype, plain.numel() > (_PIECE if plain.is_cpu else _LARGE)
        group = groups.get(key)
        if group is None:
            group = groups[key] = ([], [])
        group[0].append(index)
        group[1].append(plain)
    for (_, dtype, is_large), (of_group, found) in groups.items():
        indices += of_group
        tensors += found
        accumulated_in = torch.float32 if dtype in _HALF else None
        norms.append([*map(norm_of, found)] if is_large else multi_tensor_norms(found, accumulated_in))
    return indices, tensors, norms


@dataclass(frozen=True)
class NormGroup:
    """Gradients on the CPU whose norms are computed alike, by their positions; None stands for all, in their order."""

    positions: list[int] | None
    is_large: bool
    accumulated_in: torch.dtype | None


def groups_on_cpu(gradients: Sequence[torch.Tensor]) -> list[NormGroup] | None:
    """Return groups of gradients whose norms are computed alike; None if any is not a dense real tensor on the CPU."""
    found: dict[tuple[torch.dtype, bool], list[int]] = {}
    for position, each in enumerate(gradients):
        is_plain = type(each) is torch.Tensor and each.is_cpu and each.layout is _STRIDED
        if not is_plain or each.dtype not in _REAL or not each.numel():
            return None
        found.setdefault((each.dtype, each.numel() > _PIECE), []).append(position)
    groups = [
        NormGroup(positions, is_large, torch.float32 if dtype in _HALF else None)
        for (dtype, is_large), positions in found.items()
    ]
    return [replace(groups[0], positions=None)] if len(groups) == 1 else groups


def norms_on_cpu(gradients: list[torch.Tensor], groups: list[NormGroup]) -> list[float]:
    """Return the norm of each gradient, computed by groups. Raises NotImplementedError if any of them is sparse now."""
    norms = [0.0] * len(gradients)
    for group in groups:
        of_group = gradients if group.positions is None else [gradients[position] for position in group.positions]
        computed = [*map(norm_of, of_group)] if group.is_large else multi_tensor_norms(of_group, group.accumulated_in)
        values: list[float] = torch.stack(computed).tolist()
        if group.positions is None:
            norms = values
        else:
            for position, value in zip(group.positions, values):
                norms[position] = value
    _make_exact(norms, gradients, None)
    return norms


def norm_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the L2 norm of one real dense tensor as a 0-D tensor."""
    if tensor.device.type == "cpu" and tensor.numel() > _PIECE:
        return _norm_in_pieces(tensor)
    norm: torch.Tensor = torch.linalg.vector_norm(tensor, dtype=torch.float32 if tensor.dtype in _HALF else None)
    return norm


def wide(device: torch.device) -> torch.dtype:
    """Return the dtype in which norms are combined. MPS devices support nothing wider than float32."""
    return torch.float32 if device.type == "mps" else torch.float64


def _norm_in_pieces(tensor: torch.Tensor) -> torch.Tensor:
    """Return the L2 norm of a large CPU tensor from its pieces: as fast as one call, and as exact as float32 allows.

    A single call of the CPU kernel accumulates in float32: the result is 1.4 % too small at 134 million elements, and 20 % in
    float16. With another accumulation dtype it is 25 times slower than converting each piece while it is in the cache.
    """
    pieces = torch.split(in_memory_order(tensor).view(-1), _PIECE)
    if tensor.dtype in _HALF:
        norms = [torch.linalg.vector_norm(piece.float()) for piece in pieces]
    else:
        norms = multi_tensor_norms(list(pieces), None)
    whole: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms).to(torch.float64))
    return whole


def plain_gradient(gradient: torch.Tensor) -> torch.Tensor:
    """Return a real dense tensor with the gradient's L2 norm: the values of a sparse one, the shard of a distributed one."""
    to_local = getattr(gradient, "to_local", None)
    if to_local is not None:
        # `full_tensor()` would be a collective, and deadlock if only one rank measures.
        gradient = to_local()
    if gradient.layout is torch.sparse_coo:
        # Indices may repeat, and only `coalesce` sums the values of equal indices.
        gradient = gradient.coalesce().values()
    elif gradient.layout is not torch.strided:
        gradient = gradient.values() if hasattr(gradient, "crow_indices") else gradient.to_dense()
    return torch.view_as_real(gradient.resolve_conj()) if gradient.is_complex() else gradient


def would_wait(gradient: torch.Tensor) -> bool:
    """Return whether coalescing this tensor would wait for a device, to learn how many distinct indices there are."""
    return gradient.layout is torch.sparse_coo and not gradient.is_coalesced() and gradient.device.type != "cpu"


def norm_of_repeated(gradient: torch.Tensor) -> torch.Tensor:
    """Return the L2 norm of a sparse tensor whose indices may repeat. The host knows every size, so nothing waits."""
    indices, values = gradient._indices(), gradient._values()  # noqa: SLF001 - the public names want a coalesced tensor
    values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    count = values.shape[0]
    if not values.numel():
        return values.new_zeros(())
    rows = _number_of_each(indices, gradient.shape[: indices.shape[0]])
    columns = values.reshape(count, -1)
    width = max(1, piece_bytes(values.device, values.nbytes) // (count * values.element_size()))
    norms = [
        torch.linalg.vector_norm(torch.zeros_like(piece).index_add_(0, rows, piece))
        for piece in torch.split(columns, width, dim=1)
    ]
    norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


def _number_of_each(indices: torch.Tensor, sizes: torch.Size) -> torch.Tensor:
    """Return a number for each column of `indices`, from 0: equal columns have equal numbers."""
    flat = indices[0]
    for dimension, size in enumerate(sizes[1:], start=1):
        flat = flat * size + indices[dimension]
    in_order, order = flat.sort()
    numbers = torch.zeros_like(in_order)
    numbers[1:] = (in_order[1:] != in_order[:-1]).cumsum(0)
    return torch.empty_like(numbers).scatter_(0, order, numbers)
