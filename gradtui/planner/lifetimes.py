"""Estimate how long Python code holds the tensors of a recorded forward that autograd does not keep. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtui.protocol.operations import OperationsRecorded, TensorNumber, TorchConstant


def numbers_in(value: object) -> Iterator[int]:
    """Yield the numbers of the tensors among the arguments of an operation."""
    if isinstance(value, TensorNumber):
        yield value.number
    elif isinstance(value, tuple) and not isinstance(value, TorchConstant):
        for each in value:
            yield from numbers_in(each)


def freed_after(recorded: OperationsRecorded, subtrees: Sequence[int]) -> list[list[int]]:
    """Return for each operation the numbers of the tensors that Python code no longer holds after it.

    Code that calls a module holds what it passes until the call returns, as `x` in `x = block(x)`. So a tensor that was made
    outside of a call is held until the call that takes it last has ended. Parameters, buffers and the tensors from which the
    loss was computed are held all the time.

    Args:
        recorded: the operations.
        subtrees: the number of modules in each module's subtree, with itself, in the order of their indexes.
    """
    operations = recorded.operations
    calls = _calls([operation.module for operation in operations], subtrees)
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
        end, begun = last, made.get(number, -1)
        for first, after in calls[last]:
            if begun >= first:
                break
            end = after
        freed[end].append(number)
    return freed


def _calls(modules: Sequence[int], subtrees: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Return for each operation the first and the last operation of each call that it belongs to, the innermost call first.

    The operations of a call are one stretch.
    """
    parents = _parents(subtrees)
    chains: list[list[int]] = []
    for module in modules:
        chain = []
        while module >= 0:
            chain.append(module)
            module = parents[module]
        chains.append(chain)
    firsts: list[dict[int, int]] = []
    for at, chain in enumerate(chains):
        before = firsts[-1] if firsts else {}
        firsts.append({module: before.get(module, at) for module in chain})
    lasts: list[dict[int, int]] = [{} for _ in chains]
    after: dict[int, int] = {}
    for at in range(len(chains) - 1, -1, -1):
        after = lasts[at] = {module: after.get(module, at) for module in chains[at]}
    return [[(first[m], last[m]) for m in chain] for chain, first, last in zip(chains, firsts, lasts)]


def _parents(subtrees: Sequence[int]) -> list[int]:
    """Return the parent of each module in depth-first order, -1 for a root."""
    parents: list[int] = []
    around: list[int] = []
    for module in range(len(subtrees)):
        while around and module >= around[-1] + subtrees[around[-1]]:
            around.pop()
        parents.append(around[-1] if around else -1)
        around.append(module)
    return parents
