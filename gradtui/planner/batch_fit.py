"""Estimate a step with another batch size from the recorded one. Any thread.

What autograd keeps is a line in the batch size: the bytes that grow with it, and those that do not. Parameters, gradients and
optimizer state do not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

from gradtui.dataclass import dataclass
from gradtui.named_tuple import NamedTuple
from gradtui.planner.lifetimes import numbers_in
from gradtui.planner.meta_tensors import empty_like
from gradtui.planner.peak import StepChange, peak_of
from gradtui.planner.replay import Replayed
from gradtui.protocol.forecasts import StepPeaks
from gradtui.protocol.operations import OperationsRecorded, RecordedTensor

_MAX_BATCH = 1 << 24
"""No larger batch is looked for."""


class NoBatchDimensionError(Exception):
    """A recorded step cannot be estimated with another batch size. The message says why."""


class NoForecastError(Exception):
    """There is no forecast of the peak. The message says why."""


class LargestBatch(NamedTuple):
    """The largest batch that fits, an estimate."""

    now: int
    """The batch size of the step."""
    largest: int
    """The largest one that fits; 0 if not even one sample does."""
    peak: int
    """The forecast peak with `largest`, in bytes; that with one sample if `largest` is 0."""


@dataclass(frozen=True)
class Batch:
    """The batch of a recorded step."""

    size: int
    growing: frozenset[int]
    """The numbers of the tensors whose storages grow with it."""

    def scale(self, factor: Fraction | float) -> Fraction:
        """Return the nearest factor with which the batch size is a whole number.

        Raises:
            NoBatchDimensionError: that is another one.
        """
        larger = round(self.size * factor)
        if larger < 1 or abs(larger - self.size * factor) > 1e-6 * larger:
            raise NoBatchDimensionError(f"{self.size} samples times {float(factor):g} is no whole number")
        return Fraction(larger, self.size)


def batch_of(recorded: OperationsRecorded, size: int | None = None) -> Batch:
    """Return the batch of a recorded step.

    A tensor grows with the batch if it was computed from one that does, and one of its dimensions is a multiple of the batch
    size; one that is computed from nothing, if its first dimension is the batch size.

    Args:
        recorded: the step.
        size: the batch size, if it is known. Otherwise it is the first dimension that most inputs of the models have.

    Raises:
        NoBatchDimensionError: no input has the batch in its first or second dimension, or several sizes are possible.
    """
    if not recorded.operations:
        raise NoBatchDimensionError(recorded.missing or "no operations were recorded")
    inputs = {number: recorded.tensors[number] for number in _inputs(recorded)}
    size = _batch_size(list(inputs.values())) if size is None else size
    if size == 1:
        raise NoBatchDimensionError("a batch of one sample looks like every other dimension of size 1")
    computed = {number for number, tensor in inputs.items() if size in tensor.shape[:2]}
    if not computed:
        raise NoBatchDimensionError(f"no input of the models has {size} as its first or second dimension")
    for operation in recorded.operations:
        given = list(numbers_in((operation.arguments, operation.keywords)))
        for number in operation.results:
            tensor = recorded.tensors[number]
            if not given:
                grows = tensor.shape[:1] == (size,)
            else:
                # What the kernels of recurrent layers keep for backward is a workspace of bytes.
                is_workspace = tensor.dtype == "uint8" and len(tensor.shape) == 1
                has_size = is_workspace or any(each and each % size == 0 for each in tensor.shape)
                grows = has_size and not computed.isdisjoint(given)
            if grows:
                computed.add(number)
    # A tensor may be a part of a larger storage, such as that of a data set: what owns the storage decides.
    return Batch(size, frozenset(number for number in computed if _fills_storage(recorded.tensors[number])))


def _inputs(recorded: OperationsRecorded) -> Iterator[int]:
    """Yield the tensors that no operation made, and that are no parameters, no buffers and no scalars."""
    known: set[int] = set()
    for operation in recorded.operations:
        for number in numbers_in((operation.arguments, operation.keywords)):
            tensor = recorded.tensors[number]
            if number not in known and tensor.parameter < 0 and not tensor.is_buffer and tensor.shape:
                yield number
            known.add(number)
        known.update(operation.results)


def _batch_size(tensors: Sequence[RecordedTensor]) -> int:
    """Return the first dimension that most inputs have, those apart that the script itself trains."""
    counts = Counter(each.shape[0] for each in [each for each in tensors if not each.requires_grad] or tensors)
    if not counts:
        raise NoBatchDimensionError("no input of the models has a batch dimension")
    most = max(counts.values())
    sizes = [size for size, count in counts.items() if count == most]
    if len(sizes) > 1:
        several = " or ".join(map(str, sizes))
        raise NoBatchDimensionError(f"the inputs of the models share no dimension: the batch size may be {several}")
    return sizes[0]


def _fills_storage(tensor: RecordedTensor) -> bool:
    return tensor.bytes <= prod(tensor.shape) * empty_like(tensor).element_size()


def replayed_with(replayed: Replayed, scale: Fraction) -> Replayed:
    """Return what autograd does in a forward with a batch that is `scale` times as large."""
    saved = replayed.saved + round(replayed.growing * (scale - 1))
    ratio = Fraction(saved, replayed.saved) if replayed.saved else Fraction(1)
    return replace(
        replayed,
        saved=saved,
        growing=round(replayed.growing * scale),
        by_module={module: round(size * ratio) for module, size in replayed.by_module.items()},
        work_by_call={call: work.times(scale) for call, work in replayed.work_by_call.items()},
    )


def change_with(change: StepChange, after: Replayed, scale: Fraction) -> StepChange:
    """Return a change of the memory of a step, with a batch that is `scale` times as large.

    Args:
        change: the change.
        after: what autograd does then, with the batch as it is.
        scale: how much larger the batch is.
    """
    peaks, fixed = change.after, after.saved - after.growing
    gradients = change.gradients_now + change.gradients

    def grown(total: int, constant: int = fixed) -> int:
        return total + round(max(0, total - constant) * (scale - 1))

    def backward(total: int) -> int:
        # It begins with what autograd keeps and ends with the gradients: the larger one is its peak.
        return grown(total, min(fixed + gradients, total - peaks.begin + fixed))

    larger = replace(
        peaks,
        forward=grown(peaks.forward),
        begin=grown(peaks.begin),
        backward=backward(peaks.backward),
        adding=backward(peaks.adding) if peaks.adding is not None else None,
    )
    return replace(change, after=larger, batch_scale=float(scale))


def largest_batch(batch: Batch, peaks: StepPeaks, change: StepChange, after: Replayed, room: int) -> LargestBatch:
    """Return the largest batch size with which the forecast peak of a step is at most `room` bytes.

    Args:
        batch: the batch of the step.
        peaks: the measured peaks of the step.
        change: the change to make besides.
        after: what autograd does with that change.
        room: bytes that there are.

    Raises:
        NoForecastError: the peak does not grow.
    """

    def peak(size: int) -> int:
        return peak_of(peaks, change_with(change, after, Fraction(size, batch.size)))[0]

    largest = bisect_right(range(1, _MAX_BATCH + 1), room, key=peak)
    if largest == _MAX_BATCH:
        raise NoForecastError("the peak does not grow with the batch size")
    return LargestBatch(batch.size, largest, peak(max(1, largest)))
