"""Estimate how long Python code holds the tensors of a recorded forward that autograd does not keep. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.operations import OperationsRecorded, TensorNumber, TorchConstant

_TO_SEVERAL_NAMES = {"aten.unbind.int", "aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default"}
"""Operations that return a list of tensors, each of which gets a name."""


def numbers_in(value: object) -> Iterator[int]:
    """Yield the numbers of the tensors among the arguments of an operation."""
    if isinstance(value, TensorNumber):
        yield value.number
    elif isinstance(value, tuple) and not isinstance(value, TorchConstant):
        for each in value:
            yield from numbers_in(each)


def freed_after(recorded: OperationsRecorded) -> list[list[int]]:
    """Return for each operation the numbers of the tensors that Python code no longer holds after it.

    Code that calls a module holds what it passes until the call returns, as `x` in `x = block(x)`. So a tensor that was made
    outside of a call is held until the call that takes it last has ended. What another operation than the next one takes has
    a name there, and so have the parts of a tensor, as in `q, k, v = qkv.unbind()`: they are held until that call has ended.
    Parameters, buffers and the tensors from which the loss was computed are held all the time.
    """
    operations, spans = recorded.operations, _spans(recorded)
    made: dict[int, int] = {}
    used: dict[int, int] = {}
    for at, operation in enumerate(operations):
        taken = numbers_in((operation.arguments, operation.keywords))
        used |= dict.fromkeys((*taken, *operation.results), at)
        for number in operation.results:
            made.setdefault(number, at)
    freed: list[list[int]] = [[] for _ in operations]
    for number, last in used.items():
        tensor = recorded.tensors[number]
        if tensor.parameter >= 0 or tensor.is_buffer or number in recorded.ends:
            continue
        end, begun, call = last, made.get(number, -1), operations[last].call
        if call >= 0 and (last > begun + 1 or operations[begun].name in _TO_SEVERAL_NAMES):
            end = spans[call][1]
        while call >= 0 and begun < spans[call][0]:
            end, call = spans[call][1], recorded.calls[call].caller
        freed[end].append(number)
    return freed


def _spans(recorded: OperationsRecorded) -> list[tuple[int, int]]:
    """Return the first and the last operation of each call, with those of the calls in it."""
    spans = [(-1, -1)] * len(recorded.calls)
    for at, operation in enumerate(recorded.operations):
        call = operation.call
        while call >= 0:
            spans[call] = (spans[call][0] if spans[call][0] >= 0 else at), at
            call = recorded.calls[call].caller
    return spans
