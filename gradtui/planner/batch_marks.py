"""Where the batch is in the shape of a tensor, and where it goes if the shape changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple


class Mark(NamedTuple):
    """The dimension of a tensor that has the batch, of size outer x batch x inner."""

    dimension: int
    outer: int | None
    """None if it is unknown."""


class ContradictionError(Exception):
    """An operation cannot run with another batch size. The message says why, without the name of the operation."""

    may_be_input = False
    """Whether the reason may be that an input has no batch after all."""


class MismatchError(ContradictionError):
    """Sizes do not match each other."""

    may_be_input = True


def seen(
    before: Sequence[int], after: Sequence[int], factor: int, batch: int, given: Iterable[tuple[int, Mark]]
) -> Mark | None:
    """Return where the batch is in a result; None if it is nowhere.

    Args:
        before: the shape of the result.
        after: its shape with a batch that is `factor` times as large.
        factor: how much larger it is.
        batch: the size of the batch.
        given: the batch in the arguments: the size of its dimension, and its mark.
    """
    grown = [at for at, (size, larger) in enumerate(zip(before, after)) if size != larger]
    if len(before) != len(after) or any(after[at] != factor * before[at] for at in grown):
        raise ContradictionError("a size is no multiple of the batch size")
    if len(grown) > 1:
        raise ContradictionError("it compares each sample with each other one")
    if not grown:
        return None
    size = before[grown[0]]
    if size == batch:
        return Mark(grown[0], 1)
    outers = {mark.outer for other, mark in given if other == size}
    return Mark(grown[0], outers.pop() if len(outers) == 1 else None)


def moved(mark: Mark, before: Sequence[int], after: Sequence[int], batch: int) -> Mark:
    """Return where the batch is after a change of the shape that keeps the order of the elements."""
    at, outer = mark
    first = prod(before[:at])
    inside = prod(before[at + 1 :])
    if 0 in before or 0 in after:
        raise ContradictionError("it has no elements")
    if outer is None:
        for dimension, size in enumerate(after):
            if size == before[at] and prod(after[:dimension]) == first and prod(after[dimension + 1 :]) == inside:
                return Mark(dimension, None)
        raise ContradictionError("it is not known where the batch is in a dimension")
    outside = first * outer
    reached = 1
    for dimension, size in enumerate(after):
        if outside % reached == 0 and (reached * size) % (outside * batch) == 0 and size > 1:
            return Mark(dimension, outside // reached)
        reached *= size
    raise ContradictionError("it divides the batch")


def scaled_shape(shape: Sequence[int], mark: Mark | None, factor: int) -> tuple[int, ...]:
    """Return a shape with a larger batch."""
    return tuple(size * factor if mark and at == mark.dimension else size for at, size in enumerate(shape))


def scaled_stride(shape: Sequence[int], stride: Sequence[int], mark: Mark | None, factor: int) -> tuple[int, ...]:
    """Return the strides with a larger batch: dimensions around that of the batch are further apart."""
    if mark is None or not stride[mark.dimension]:
        return tuple(stride)
    span = shape[mark.dimension] * stride[mark.dimension]
    return tuple(
        step * factor if at != mark.dimension and shape[at] > 1 and step >= span else step
        for at, step in enumerate(stride)
    )


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return how many elements a storage needs for a tensor."""
    return 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, stride))
