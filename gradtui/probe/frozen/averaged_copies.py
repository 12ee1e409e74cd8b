"""Find averaged copies of a model (EMA) that cannot follow it: buffers left out, and types too coarse for the average.

Compared are a few elements of parameters and buffers with those of the first sample. Version counters do not tell: averages are
often written through `.data`. Runs on the training thread, in sampled steps. Results from a device arrive later.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import field

import torch
from torch import nn

from gradtui.dataclass import dataclass
from gradtui.probe.frozen.bits import Bits, BitSample
from gradtui.probe.model import IndexMapping, ModuleTree
from gradtui.probe.torch_private.module_walk import named_modules

_TENSORS = 16
"""Parameters, and buffers, of each of the two models that are compared."""
_PAIRS = 4
_ALIKE = 8
"""Modules of one type and size at most: more of them are layers of one model."""
_SAMPLES = 40
"""Samples of a pair at most."""
_BETWEEN = 3
"""Steps between two samples at least."""
_COARSE = (torch.bfloat16, torch.float16)

_Key = tuple[int, str, int]
"""Number of the pair, the kind of the tensor, and its number."""


@dataclass(eq=False)
class Copy:
    """A model without gradients, and a model with the same parameters that trains."""

    copy: int
    """Index of its module."""
    source: int
    """Index of the module that trains."""
    dtype: torch.dtype
    """Of the copy's parameters."""
    buffers: tuple[str, ...]
    """Names of the buffers that are compared."""
    is_called: bool = False
    """The copy has run in eval mode."""
    samples: int = 0
    since: int = 0
    """The step of the first sample."""
    step: int = 0
    """The step of the newest one."""
    first: dict[tuple[str, int], Bits] = field(default_factory=dict)
    changed: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By kind: the share of the tensors, and of their elements, that differ from the first sample."""


class AveragedCopies:
    """Finds such pairs, and compares their tensors over sampled steps."""

    def __init__(self) -> None:
        self.pairs: list[Copy] = []
        self.is_new = True
        """Whether models have been listed since pairs were looked for."""
        self._under_way: BitSample[_Key] | None = None
        self._step = 0

    def tree_changed(self, moved: IndexMapping) -> None:
        """Look for pairs again: modules have new indexes."""
        former = {pair.copy: pair for pair in self.pairs}
        kept = moved.of_modules(former)
        sources = moved.of_modules({pair.source: pair for pair in self.pairs})
        self.pairs = []
        for index, pair in kept.items():
            source = next((new for new, each in sources.items() if each is pair), None)
            if source is not None:
                pair.copy, pair.source = index, source
                self.pairs.append(pair)
        self.is_new, self._under_way = True, None

    def on_step_post(self, tree: ModuleTree, called: Container[int], evaluated: Container[int], step: int) -> bool:
        """Compare after a sampled step, in which the modules `called` ran. Returns whether a comparison has been completed.

        The modules `evaluated` ran between steps, in eval mode or without gradients.
        """
        self._find(tree)
        for pair in self.pairs:
            module = tree.module_refs[pair.copy]()
            has_run = pair.copy in called and module is not None and not module.training
            pair.is_called |= has_run or pair.copy in evaluated or tree.roots[pair.copy] in evaluated
        has_compared = self._arrived()
        wanted = [
            pair for pair in self.pairs if pair.samples < _SAMPLES and (not pair.step or step >= pair.step + _BETWEEN)
        ]
        if wanted and self._under_way is None:
            self._step = step
            self._under_way = BitSample(_tensors(tree, self.pairs, wanted), few=True)
            has_compared |= self._arrived()
        return has_compared

    def _find(self, tree: ModuleTree) -> None:
        if not self.is_new:
            return
        self.is_new = False
        known = {(pair.copy, pair.source): pair for pair in self.pairs}
        self.pairs = [known.get((each.copy, each.source), each) for each in _pairs(tree)]

    def _arrived(self) -> bool:
        if self._under_way is None or not self._under_way.is_there:
            return False
        bits, self._under_way = self._under_way.bits(), None
        for number, pair in enumerate(self.pairs):
            now = {(kind, index): each for (of, kind, index), each in bits.items() if of == number}
            if not now:
                continue
            pair.samples, pair.step = pair.samples + 1, self._step
            if not pair.first:
                pair.first, pair.since = now, self._step
            else:
                pair.changed = {kind: _changed(kind, pair.first, now) for kind in _KINDS}
        return True


_KINDS = ("copy", "source", "copy buffers", "source buffers")


def _changed(
    kind: str, before: Mapping[tuple[str, int], Bits], now: Mapping[tuple[str, int], Bits]
) -> tuple[float, float]:
    """Return the share of the tensors, and the mean share of their elements, that have changed."""
    tensors, shares = 0, []
    for key, first in before.items():
        later = now.get(key)
        if key[0] != kind or later is None or later.kind != first.kind:
            continue
        count = first.kind[-1]
        size = max(1, len(first.value) // count) if isinstance(count, int) and count else len(first.value) or 1
        pieces = range(0, len(first.value), size)
        differing = sum(first.value[at : at + size] != later.value[at : at + size] for at in pieces)
        tensors += differing > 0
        shares.append(differing / max(1, len(pieces)))
    return (tensors / len(shares), sum(shares) / len(shares)) if shares else (0.0, 0.0)


def _pairs(tree: ModuleTree) -> list[Copy]:
    """Return models without a gradient, or their direct children, with another one of the same layout that has one.

    A copy need not be frozen: `AveragedModel` leaves `requires_grad` as it is.
    """
    parents = tree.parents
    by_size: dict[object, list[int]] = {}
    by_layout: dict[object, list[int]] = {}
    for index, info in enumerate(tree.modules):
        is_high = parents[index] < 0 or parents[parents[index]] < 0
        count = info.subtree_parameters
        if is_high and count > 1:
            by_size.setdefault((info.type_name, count, info.subtree_modules), []).append(index)
    for alike in by_size.values():
        for index in alike if 1 < len(alike) <= _ALIKE else ():
            first, count = tree.modules[index].first_parameter, tree.modules[index].subtree_parameters
            shapes = tuple(shape for shape, _ in tree.layouts[first : first + count])
            by_layout.setdefault((tree.modules[index].type_name, shapes), []).append(index)
    found: list[Copy] = []
    for alike in by_layout.values():
        frozen: list[int] = []
        training: list[int] = []
        for index in alike:
            has_gradient = any(
                each is not None and each.is_leaf and each.grad is not None for each in _parameters(tree, index)
            )
            (training if has_gradient else frozen).append(index)
        for copy in frozen if training else ():
            is_part = any(each.copy == parents[copy] and each.source == parents[training[0]] for each in found)
            if not is_part and len(found) < _PAIRS:
                dtype = tree.layouts[tree.modules[copy].first_parameter][1]
                found.append(Copy(copy, training[0], dtype, tuple(_buffers(tree.module_refs[copy]()))))
    return found


def _parameters(tree: ModuleTree, module: int) -> list[torch.Tensor | None]:
    info = tree.modules[module]
    return [reference() for reference in tree.parameter_refs[info.first_parameter :][: info.subtree_parameters]]


def _buffers(module: nn.Module | None) -> dict[str, torch.Tensor]:
    """Return the first buffers of a module that its `state_dict` has and that hold numbers with fractions."""
    found: dict[str, torch.Tensor] = {}
    for path, part in named_modules(module) if module is not None else ():
        temporary = part._non_persistent_buffers_set  # noqa: SLF001 - torch has no public name for it
        for name, buffer in part._buffers.items():  # noqa: SLF001 - `named_buffers` does not tell which are saved
            if buffer is not None and name not in temporary and buffer.is_floating_point() and len(found) < _TENSORS:
                found[f"{path}.{name}" if path else name] = buffer
    return found


def _tensors(tree: ModuleTree, pairs: list[Copy], wanted: list[Copy]) -> Iterator[tuple[_Key, torch.Tensor]]:
    for number, pair in enumerate(pairs):
        for kind, module in (("copy", pair.copy), ("source", pair.source)) if pair in wanted else ():
            parameters = _parameters(tree, module)
            for index in range(0, len(parameters), max(1, len(parameters) // _TENSORS)):
                if (tensor := parameters[index]) is not None:
                    yield (number, kind, index), tensor
            named = _buffers(tree.module_refs[module]())
            for index, name in enumerate(pair.buffers):
                if name in named:
                    yield (number, f"{kind} buffers", index), named[name]
