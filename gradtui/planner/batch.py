"""A recorded step as it would be with another batch size. Any thread."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import torch

from gradtui.planner.batch_basis import Plain
from gradtui.planner.batch_literals import with_scaled
from gradtui.planner.batch_marks import extent
from gradtui.planner.batch_search import Found, Hypothesis, NotFoundError, found_under
from gradtui.protocol.operations import OperationsRecorded, RecordedTensor

__all__ = ["Batch", "NoBatchDimensionError", "batch_of"]


class NoBatchDimensionError(Exception):
    """A recorded step cannot be scaled to another batch size. The message says why."""


class Batch:
    """The batch of a recorded step.

    Args:
        plain: the step.
        found: where the batch is in it.
    """

    def __init__(self, plain: Plain, found: Found) -> None:
        self._plain, self._found = plain, found
        self._whole = self._storages_of_inputs()

    @property
    def size(self) -> int:
        """The batch size of the step."""
        return self._found.hypothesis.batch

    def scaled(self, factor: Fraction | float) -> OperationsRecorded:
        """Return the step with a batch that is `factor` times as large; the new batch size must be a whole number.

        A float stands for the nearest fraction with which it is one.
        """
        larger = round(self.size * factor)
        if larger < 1 or abs(larger - self.size * factor) > 1e-6 * larger:
            raise NoBatchDimensionError(f"{self.size} samples times {float(factor):g} is no whole number")
        if larger == self.size:
            return self._plain.recorded
        exact, recorded = Fraction(larger, self.size), self._plain.recorded
        literals = self._found.literals
        return replace(
            recorded,
            tensors=tuple(self._tensor(number, each, exact) for number, each in enumerate(recorded.tensors)),
            operations=tuple(
                with_scaled(operation, literals.get(at, frozenset()), exact)
                for at, operation in enumerate(recorded.operations)
            ),
        )

    def _tensor(self, number: int, recorded: RecordedTensor, factor: Fraction) -> RecordedTensor:
        known = self._found.tensors.get(number)
        if known is None:
            return recorded
        before, after, times = self._plain.tensor(number), known.tensor, self._found.factor
        shape = tuple(
            int(size * factor) if known.mark is not None and at == known.mark.dimension else size
            for at, size in enumerate(recorded.shape)
        )
        stride = tuple(
            int(step * factor) if larger == times * was != was else step
            for step, was, larger in zip(recorded.stride, before.stride(), after.stride())
        )
        size = extent(shape, stride) * after.element_size()
        return replace(
            recorded, shape=shape, stride=stride, bytes=max(size, self._bytes(recorded, before, after, factor))
        )

    def _bytes(self, recorded: RecordedTensor, before: torch.Tensor, after: torch.Tensor, factor: Fraction) -> int:
        whole = self._whole.get(after.untyped_storage()._cdata)  # noqa: SLF001 - the identity of a storage
        if whole is not None:
            return int(recorded.bytes * factor) if whole else recorded.bytes
        was, larger = before.untyped_storage().nbytes(), after.untyped_storage().nbytes()
        if larger == self._found.factor * was:
            return int(recorded.bytes * factor)
        return recorded.bytes + int((larger - was) * (factor - 1) / (self._found.factor - 1))

    def _storages_of_inputs(self) -> dict[int, bool]:
        """Return for each storage of an input whether all of it is the batch, and not a data set of which it is a part."""
        whole: dict[int, bool] = {}
        for number in self._plain.inputs:
            recorded, known = self._plain.recorded.tensors[number], self._found.tensors[number]
            used = extent(recorded.shape, recorded.stride) * known.tensor.element_size()
            is_whole = known.mark is not None and used * self.size > recorded.bytes * (self.size - 1)
            whole[known.tensor.untyped_storage()._cdata] = is_whole  # noqa: SLF001
        return whole


def batch_of(recorded: OperationsRecorded, size: int | None = None) -> Batch:
    """Return the batch of a recorded step: the first dimension that the inputs of its models share.

    Args:
        recorded: the step.
        size: the batch size, if it is known. Without it the batch is a first dimension of inputs, and if they share none, one
            of these alone must be possible.

    Raises:
        NoBatchDimensionError: the dimension cannot be found, or an operation contradicts it.
    """
    if not recorded.operations:
        raise NoBatchDimensionError(recorded.missing or "no operations were recorded")
    plain = Plain(recorded)
    reasons: list[str] = []
    found: list[Found] = []
    for hypothesis in _hypotheses(plain, size):
        try:
            found.append(found_under(plain, hypothesis))
        except NotFoundError as reason:
            reasons.append(str(reason))
    if len(found) > 1:
        several = " or ".join(str(each.hypothesis.batch) for each in found)
        raise NoBatchDimensionError(f"the inputs of the models share no dimension: the batch size may be {several}")
    if found:
        return Batch(plain, found[0])
    if reasons:
        raise NoBatchDimensionError(reasons[0])
    shapes = [recorded.tensors[number].shape for number in plain.inputs]
    if size == 1 or (size is None and any(shape[0] == 1 for shape in shapes)):
        raise NoBatchDimensionError("a batch of one sample cannot be told from other dimensions of size 1")
    if size is not None:
        raise NoBatchDimensionError(f"no input of the models has {size} as its first or second dimension")
    raise NoBatchDimensionError("no input of the models has a batch dimension")


def _hypotheses(plain: Plain, size: int | None) -> list[Hypothesis]:
    """Return what the batch could be.

    Only a known size is looked for in the second dimension, as where a sequence is the first one.
    """
    tensors = [plain.recorded.tensors[number] for number in plain.inputs]
    shapes = [each.shape for each in tensors if not each.requires_grad] or [each.shape for each in tensors]
    first = dict.fromkeys(shape[0] for shape in shapes if shape[0] > 1)
    if size is None:
        return [Hypothesis(each, 0) for each in first]
    if size in first:
        return [Hypothesis(size, 0)]
    second = any(size == shape[1] for shape in shapes if len(shape) > 1)
    return [Hypothesis(size, 1)] if second and size > 1 else []
