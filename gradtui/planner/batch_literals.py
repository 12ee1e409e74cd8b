"""Which numbers among the arguments of an operation are sizes that contain the batch. Pure, apart from torch's schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from gradtui.planner.batch_marks import ContradictionError, Mark, moved, scaled_stride
from gradtui.planner.meta_tensors import function_of
from gradtui.protocol.operations import Operation

__all__ = ["Literals", "Place", "Seen", "literals_of", "with_scaled"]


class Place(NamedTuple):
    """A number among the arguments of an operation."""

    argument: int | str
    """The index of the argument, or its keyword."""
    item: int = -1
    """The index in it, if it is a tuple."""


class Literals(NamedTuple):
    """Which numbers grow with the batch: one of several possible choices."""

    choices: tuple[frozenset[Place], ...]
    """The first is the most probable one."""
    doubtful: int = 0
    """So many choices after the first one are probable too, and have to be excluded."""
    mark: Mark | None = None
    """Where the batch is in the result, if that is known."""


class Seen(NamedTuple):
    """A tensor as an operation takes it."""

    shape: tuple[int, ...]
    mark: Mark | None


_NONE = frozenset[Place]()
_VIEWS = {"aten.view.default", "aten._unsafe_view.default"}
_SIZES = {"size", "n", "m", "end", "steps"}
"""The names that torch's schemas give to arguments that are sizes of the result."""
_WITHOUT_SIZES = {"aten.unfold.default", "aten.linspace.default"}
"""Operations that use one of these names for something else."""
_BY_NUMBER = {"aten.index.Tensor", "aten.index_select.default"}
"""Operations that take elements by their numbers."""
_IN_PARTS = {"aten.split.Tensor", "aten.split_with_sizes.default", "aten.unsafe_split.Tensor"}


def literals_of(
    operation: Operation, tensor: Callable[[Any], Seen | None], result: tuple[int, ...], batch: int
) -> Literals:
    """Return which numbers of an operation may grow with the batch.

    Args:
        operation: the operation.
        tensor: returns the tensor that an argument is, None if it is none.
        result: the shape of its first result.
        batch: the size of the batch.
    """
    name, arguments = operation.name, operation.arguments
    if name == "aten.cat.default":
        return _joined(operation, tensor, result, batch)
    first = tensor(arguments[0]) if arguments else None
    if first is not None and first.mark is not None and name in _BY_NUMBER:
        _check_indices(operation, first.mark, tensor)
    if first is None or name.startswith("aten.new_"):
        return _of_size(operation, batch)
    mark = first.mark
    if name in _VIEWS:
        if mark is None:
            return Literals((_NONE,))
        to = moved(mark, first.shape, result, batch)
        return Literals((_scaled(operation, 1, [to.dimension]),), 0, to)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(operation, first, result, batch)
    if mark is not None and name in _IN_PARTS:
        return _parts(operation, first)
    return Literals((_NONE,))


def with_scaled(operation: Operation, places: frozenset[Place], factor: Fraction | int) -> Operation:
    """Return an operation in which the numbers at these places are multiplied by a factor."""
    if not places:
        return operation

    def changed(key: int | str, value: Any) -> Any:
        if isinstance(value, tuple) and type(value) is tuple:
            return tuple(
                int(each * factor) if Place(key, index) in places else each for index, each in enumerate(value)
            )
        return int(value * factor) if Place(key) in places else value

    return replace(
        operation,
        arguments=tuple(changed(at, value) for at, value in enumerate(operation.arguments)),
        keywords=tuple((name, changed(name, value)) for name, value in operation.keywords),
    )


def _of_size(operation: Operation, batch: int) -> Literals:
    """A new tensor may have the batch in any dimension of its size, or in none."""
    if operation.name in _WITHOUT_SIZES:
        return Literals((_NONE,))
    equal: list[frozenset[Place]] = []
    multiples: list[frozenset[Place]] = []
    for place, value, group in _sizes(operation):
        if isinstance(value, int) and not isinstance(value, bool) and value and value % batch == 0:
            (equal if value == batch else multiples).append(frozenset({place}) | group)
    return Literals((_NONE, *equal, *multiples), len(equal))


def _sizes(operation: Operation) -> Iterator[tuple[Place, Any, frozenset[Place]]]:
    """Yield each number that is a size, and the strides that grow with it."""
    schema = function_of(operation.name)._schema.arguments  # noqa: SLF001 - torch's name for the names of arguments
    names = [each.name for each in schema]
    given: dict[int | str, tuple[str, Any]] = {at: (names[at], value) for at, value in enumerate(operation.arguments)}
    given |= {name: (name, value) for name, value in operation.keywords}
    key, strides = next(((key, value) for key, (name, value) in given.items() if name == "stride"), (None, ()))
    for argument, (name, value) in given.items():
        if name not in _SIZES:
            continue
        if not isinstance(value, tuple):
            yield Place(argument), value, _NONE
            continue
        for at, size in enumerate(value):
            grown = scaled_stride(value, strides, Mark(at, None), 2) if key is not None else ()
            group = frozenset(Place(key, i) for i, step in enumerate(grown) if key is not None and step != strides[i])
            yield Place(argument, at), size, group


def _scaled(operation: Operation, argument: int, indices: list[int]) -> frozenset[Place]:
    value = operation.arguments[argument]
    return frozenset(Place(argument, at) for at in indices if value[at] != -1)


def _expand(operation: Operation, first: Seen, result: tuple[int, ...], batch: int) -> Literals:
    added = len(result) - len(first.shape)
    if first.mark is not None:
        return Literals((_scaled(operation, 1, [first.mark.dimension + added]),))
    new = [at for at, size in enumerate(result) if size % batch == 0 and size and (
        at < added or first.shape[at - added] != size
    )]  # fmt: skip
    new.sort(key=lambda at: result[at] != batch)
    choices = [_scaled(operation, 1, [at]) for at in new]
    return Literals((_NONE, *choices), sum(result[at] == batch for at in new))


def _repeat(operation: Operation, first: Seen, result: tuple[int, ...], batch: int) -> Literals:
    repeats = operation.arguments[1]
    if first.mark is not None:
        added = len(repeats) - len(first.shape)
        at = first.mark.dimension + added
        outer = None if first.mark.outer is None else first.mark.outer * repeats[at]
        return Literals((_NONE,), 0, Mark(at, outer))
    equal = [_scaled(operation, 1, [at]) for at, times in enumerate(repeats) if times == batch and result[at]]
    return Literals((_NONE, *equal), len(equal))


def _slice(operation: Operation, first: Seen, result: tuple[int, ...], batch: int) -> Literals:
    dimension, start, end, step = _with_defaults(operation, 0, None, None, 1)
    dimension %= len(first.shape)
    size, mark = first.shape[dimension], first.mark
    if mark is None:
        is_first = not start and step == 1 and end == batch and result[dimension] == batch
        return Literals((_NONE, frozenset({Place(3)})), 1) if is_first and size > batch else Literals((_NONE,))
    if mark.dimension != dimension:
        return Literals((_NONE,))
    end = size if end is None or end > size else end
    is_whole = not start and end == size
    unit = size // mark.outer if mark.outer else 0
    start = start or 0
    if step != 1 or (not is_whole and (not unit or start < 0 or end < 0 or start % unit or end % unit)):
        raise ContradictionError("it takes a part of the batch")
    written = operation.arguments[2:]
    return Literals((frozenset(
        Place(2 + at) for at, value in enumerate((start, end)) if value and at < len(written) and written[at] == value
    ),))  # fmt: skip


def _with_defaults(operation: Operation, *defaults: Any) -> tuple[Any, ...]:
    """Return the arguments after the first one."""
    given = operation.arguments[1:]
    return (*given, *defaults[len(given) :])


def _select(operation: Operation, first: Seen, _: tuple[int, ...], batch: int) -> Literals:
    _, dimension, index = operation.arguments
    if first.mark is not None and first.mark.dimension == dimension % len(first.shape) and index not in (0, -1):
        raise ContradictionError(f"it takes one sample of {batch}")
    return Literals((_NONE,))


def _as_strided(_: Operation, first: Seen, result: tuple[int, ...], batch: int) -> Literals:
    if first.mark is not None or batch in result:
        raise ContradictionError("its strides are numbers")
    return Literals((_NONE,))


def _group_norm(operation: Operation, first: Seen, _: tuple[int, ...], batch: int) -> Literals:
    if first.mark is None:
        return Literals((_NONE,))
    if first.mark.dimension or operation.arguments[3] % batch:
        raise ContradictionError("the batch is not its first dimension")
    return Literals((frozenset({Place(3)}),))


def _joined(
    operation: Operation, tensor: Callable[[Any], Seen | None], result: tuple[int, ...], batch: int
) -> Literals:
    """Batches one after the other have the parts as the outer factor."""
    dimension = (operation.arguments[1] if len(operation.arguments) > 1 else 0) % max(1, len(result))
    parts = [seen for each in operation.arguments[0] if (seen := tensor(each)) is not None]
    whole = all(
        each.mark is not None and each.mark.dimension == dimension
        and each.mark.outer is not None and each.mark.outer * batch == each.shape[dimension]
        for each in parts
    )  # fmt: skip
    return Literals((_NONE,), 0, Mark(dimension, result[dimension] // batch) if parts and whole else None)


def _parts(operation: Operation, first: Seen) -> Literals:
    sizes, dimension = _with_defaults(operation, None, 0)
    mark = first.mark
    if mark is None or mark.dimension != dimension % len(first.shape):
        return Literals((_NONE,))
    unit = first.shape[mark.dimension] // mark.outer if mark.outer else 0
    every = sizes if isinstance(sizes, tuple) else (sizes,)
    if not unit or any(size % unit for size in every):
        raise ContradictionError("it divides the batch")
    indices = range(len(sizes)) if isinstance(sizes, tuple) else (-1,)
    return Literals((frozenset(Place(1, at) for at in indices),))


def _check_indices(operation: Operation, mark: Mark, tensor: Callable[[Any], Seen | None]) -> None:
    """The numbers of samples are a batch too."""
    if operation.name == "aten.index.Tensor":
        indices = operation.arguments[1]
        index = tensor(indices[mark.dimension]) if mark.dimension < len(indices) else None
    else:
        index = tensor(operation.arguments[2]) if operation.arguments[1] == mark.dimension else None
    if index is not None and index.mark is None:
        raise ContradictionError("it takes samples by number")


_SPECIAL: dict[str, Callable[[Operation, Seen, tuple[int, ...], int], Literals]] = {
    "aten.expand.default": _expand,
    "aten.repeat.default": _repeat,
    "aten.slice.Tensor": _slice,
    "aten.select.int": _select,
    "aten.as_strided.default": _as_strided,
    "aten._reshape_alias.default": _as_strided,
    "aten.native_group_norm.default": _group_norm,
}
