"""Find weights of an embedding and of a linear module that are equal in the first sampled step, and that differ later.

They were meant to be tied, and something has replaced one of them by a copy. A few elements of each are compared, on the host.
Runs on the training thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import nn

from gradtui.probe.frozen import Bits, BitSample
from gradtui.probe.model import IndexMapping, ModuleTree, memory_of
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import WeightsUntied

_MAX = 64
"""Maximum number of weights that are compared."""
_DISTINCT = 4
"""Number of different values that the elements must have. Constant tensors are equal without being meant to be tied."""


class TiedWeights:
    """Compares the weights of a model's embeddings with those of its linear modules in sampled steps."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock = context.emit, context.clock
        self._is_new = True
        """Whether the parameters have been listed since the last comparison."""
        self._equal: dict[tuple[int, int], int] = {}
        """Indexes of an embedding's weight and of a linear module's -> the last step that began with equal values."""
        self._sample: BitSample[int] | None = None
        self._step = 0
        """The step that began with the values in the sample."""

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new parameter indexes."""
        former = [*self._equal]
        new = moved.of_indices([index for pair in former for index in pair]) if former else None
        pairs = zip(new[::2], new[1::2]) if new is not None else ()
        self._equal = {pair: self._equal[known] for pair, known in zip(pairs, former) if -1 not in pair}
        self._is_new, self._sample = True, None

    def on_backward(self, tree: ModuleTree, step: int) -> None:
        """Compare the weights with which the sampled step `step` computes."""
        if self._sample is None:
            indexes = _candidates(tree) if self._is_new else {index for pair in self._equal for index in pair}
            if not indexes:
                self._is_new = False
                return
            live = [(index, each) for index in indexes if (each := tree.parameter_refs[index]()) is not None]
            self._sample, self._step = BitSample(live, few=True), step
        if self._sample.is_there:
            bits, self._sample = self._sample.bits(), None
            self._compare(tree, bits)

    def _compare(self, tree: ModuleTree, bits: Mapping[int, Bits]) -> None:
        for embedding, linear in [*self._equal]:
            if embedding not in bits or linear not in bits:
                continue
            if bits[embedding] == bits[linear]:
                self._equal[embedding, linear] = self._step
                continue
            first, second = tree.parameters[embedding], tree.parameters[linear]
            equal_step = self._equal.pop((embedding, linear))
            self._emit(WeightsUntied(self._clock.at(), self._step, first.path, second.path, first.count, equal_step))
        if self._is_new:
            self._is_new = False
            self._equal |= {pair: self._step for pair in _equal_pairs(tree, bits) if pair not in self._equal}


def _candidates(tree: ModuleTree) -> set[int]:
    """Return the trainable weights of embeddings, and those of linear modules with the same shape in the same model."""
    owners, roots = tree.owners, tree.roots
    kinds = {index: kind for index, module in tree.live_modules() if (kind := _kind(module)) is not None}
    found: dict[object, dict[type[nn.Module], list[int]]] = {}
    for index, parameter in tree.live_parameters() if len({*kinds.values()}) > 1 else ():
        kind, (shape, dtype) = kinds.get(owners[index]), tree.layouts[index]
        if kind is not None and parameter.requires_grad and shape is not None and len(shape) == 2:
            alike = roots[owners[index]], shape, dtype, parameter.device
            found.setdefault(alike, {}).setdefault(kind, []).append(index)
    chosen = [index for by_kind in found.values() if len(by_kind) > 1 for each in by_kind.values() for index in each]
    return {*chosen[:_MAX]}


def _kind(module: nn.Module) -> type[nn.Module] | None:
    if isinstance(module, nn.Embedding):
        return nn.Embedding
    return nn.Linear if isinstance(module, nn.Linear) else None


def _equal_pairs(tree: ModuleTree, bits: Mapping[int, Bits]) -> Iterator[tuple[int, int]]:
    """Yield the weights of an embedding and of a linear module with equal values in different memory."""
    by_bits: dict[Bits, list[int]] = {}
    for index, each in bits.items():
        by_bits.setdefault(each, []).append(index)
    for each, indexes in by_bits.items():
        if len(indexes) < 2 or _distinct(each) < _DISTINCT:
            continue
        embeddings = [index for index in indexes if isinstance(_owner(tree, index), nn.Embedding)]
        for embedding in embeddings:
            for linear in indexes:
                if linear not in embeddings and _memory(tree, embedding) != _memory(tree, linear):
                    yield embedding, linear


def _distinct(bits: Bits) -> int:
    count = bits.kind[-1]
    size = len(bits.value) // count if isinstance(count, int) else len(bits.value)
    return len({bits.value[at : at + size] for at in range(0, len(bits.value), size)})


def _owner(tree: ModuleTree, parameter: int) -> nn.Module | None:
    return tree.module_refs[tree.owners[parameter]]()


def _memory(tree: ModuleTree, parameter: int) -> object:
    tensor = tree.parameter_refs[parameter]()
    return memory_of(tensor) if tensor is not None else None
