"""Find rows of a trainable parameter whose gradient is always zero, and whether the optimizer moves them. Training thread.

A script that trains a few rows of an embedding sets the gradient of the others to zero, in a hook or after backward. Weight
decay and momentum move these rows all the same. In sampled steps, gradtui reads the parameters with a hook on their gradient
and the weights of embeddings. Results from a device arrive later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import field

import torch
from torch import nn

from gradtui.dataclass import dataclass
from gradtui.probe.memory import devices_with_room, of_this_process
from gradtui.probe.model import IndexMapping, ModuleTree
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.own_hooks import accumulation_hooks
from gradtui.probe.torch_private.private_names import gradient_of, has_gradient_hooks, is_wrapper

_SAMPLES = 4
"""Samples without a row that is always zero, after which gradtui reads a parameter no more."""
_ROWS = 8
"""Rows whose values are compared."""
_ELEMENTS = 64
"""Elements of each that are compared."""
_MIN_ROWS, _MAX_ROWS = 2, 1 << 20


@dataclass
class Masked:
    """The rows of one parameter that no gradient reaches."""

    rows: frozenset[int] = frozenset()
    """Those that had a gradient of zero in the newest sample."""
    count: int = 0
    """The rows of the parameter."""
    samples: int = 0
    """Samples in a row with the same rows."""
    moved: int = 0
    """Those of these samples in which the step has moved some of the rows."""
    zeroed: int = 0
    """Samples in which the script has set the gradient of rows to zero between backward and step."""
    by_hook: bool = False
    """A hook is on the gradient."""
    is_deliberate: bool = False
    """A gradient reaches the same rows of the module's bias, or the parameter is an embedding: the rows are in use."""


@dataclass
class _Sample:
    """What is read in one step."""

    before: HostCopy
    """The largest gradient of each row when the step begins."""
    after_backward: HostCopy | None
    """The same when backward has ended."""
    bias: HostCopy | None
    chosen: list[int]
    """Rows whose values are compared."""
    values: HostCopy | None = None
    later: HostCopy | None = None
    """Their values before and after the step."""


@dataclass
class MaskedRows:
    """Compares the gradients of rows over sampled steps, by index of the parameter."""

    found: dict[int, Masked] = field(default_factory=dict)
    chosen: list[int] = field(default_factory=list)
    """Indexes of the parameters whose rows are read."""
    _quiet: Counter[int] = field(default_factory=Counter)
    """Samples without such rows."""
    _backward: dict[int, HostCopy] = field(default_factory=dict)
    _open: dict[int, _Sample] = field(default_factory=dict)

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new parameter indexes."""
        self.found, self._quiet = moved.of_parameters(self.found), Counter(moved.of_parameters(self._quiet))
        self.chosen.clear()
        self._backward.clear()
        self._open.clear()

    def on_backward_post(self, tree: ModuleTree) -> None:
        """Read which rows of the embeddings have a gradient when a backward has ended."""
        self._backward.clear()
        for index, tensor, module in self._candidates(tree):
            if isinstance(module, nn.Embedding) and index not in self._open:
                self._backward.update((index, read) for read in _largest(gradient_of(tensor)))

    def step_begins(self, tree: ModuleTree) -> None:
        """Read which rows have a gradient before the optimizer's step, and the values of some that had none before."""
        backward, self._backward = self._backward, {}
        for index, tensor, module in self._candidates(tree):
            if index in self._open:
                continue
            bias = getattr(module, "bias", None)
            reads = [*_largest(gradient_of(tensor))]
            if not reads:
                continue
            known = self.found.setdefault(index, Masked())
            known.by_hook = has_gradient_hooks(tensor)
            known.is_deliberate |= isinstance(module, nn.Embedding)
            beside = _largest(gradient_of(bias)) if isinstance(bias, torch.Tensor) and bias is not tensor else ()
            rows = sorted(known.rows)
            chosen = rows[:: max(1, len(rows) // _ROWS)][:_ROWS]
            values = _values(tensor, chosen) if chosen else None
            self._open[index] = _Sample(reads[0], backward.get(index), next(iter(beside), None), chosen, values)

    def step_ended(self, tree: ModuleTree) -> None:
        """Read the same values after the step, and compare what has arrived."""
        for index, sample in [*self._open.items()]:
            tensor = tree.parameter_refs[index]()
            if tensor is None:
                del self._open[index]
                continue
            if sample.values is not None and sample.later is None:
                sample.later = _values(tensor, sample.chosen)
            copies = (sample.before, sample.after_backward, sample.bias, sample.values, sample.later)
            if all(copy.is_there for copy in copies if copy is not None):
                del self._open[index]
                self._compare(index, sample)

    def choose(self, tree: ModuleTree) -> None:
        """Choose the parameters with a hook on their gradient, and the weights of embeddings."""
        self.chosen = []
        for index, (reference, module) in enumerate(zip(tree.parameter_refs, tree.owners)):
            tensor = reference()
            if tensor is None or not tensor.requires_grad or tensor.dim() < 2:
                continue
            # Read directly: a function call for each parameter costs too much.
            hooks = tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None)  # noqa: SLF001
            is_meant = hooks or isinstance(tree.module_refs[module](), nn.Embedding)
            has_rows = is_meant and _MIN_ROWS <= tensor.shape[0] <= _MAX_ROWS and not is_wrapper(tensor)
            if has_rows and self._quiet[index] < _SAMPLES:
                self.chosen.append(index)

    def _candidates(self, tree: ModuleTree) -> Iterator[tuple[int, torch.Tensor, nn.Module]]:
        """Yield the chosen parameters that have a gradient, with their modules, as far as their device has room."""
        chosen = []
        for index in self.chosen:
            tensor, module = tree.parameter_refs[index](), tree.module_refs[tree.owners[index]]()
            gradient = gradient_of(tensor) if tensor is not None else None
            if tensor is None or module is None or gradient is None or gradient.layout is not torch.strided:
                continue
            # Rows that a command has frozen do not move.
            if self._quiet[index] < _SAMPLES and not accumulation_hooks(tensor, own=True):
                chosen.append((index, tensor, module))
        room = devices_with_room(tensor for _, tensor, _ in chosen) if chosen else {}
        yield from (each for each in chosen if room.get(each[1].device, True))

    def _compare(self, index: int, sample: _Sample) -> None:
        known, gradients = self.found[index], sample.before.values()
        zero = frozenset(row for row, largest in enumerate(gradients) if not largest)
        if not zero or len(zero) == len(gradients):
            self._quiet[index] += 1
            known.samples = known.moved = known.zeroed = 0
            known.rows = frozenset()
            return
        is_same = zero == known.rows
        known.rows, known.count = zero, len(gradients)
        known.samples = known.samples + 1 if is_same else 1
        if not is_same:
            self._quiet[index] += 1
            known.moved = known.zeroed = 0
        if sample.after_backward is not None:
            reached = sample.after_backward.values()
            known.zeroed += any(reached[row] for row in zero)
        if sample.bias is not None and len(beside := sample.bias.values()) == len(gradients):
            known.is_deliberate |= any(beside[row] for row in zero)
        if is_same and sample.values is not None and sample.later is not None:
            known.moved += sample.values.values() != sample.later.values()


def _largest(gradient: torch.Tensor | None) -> Iterable[HostCopy]:
    """Return the largest absolute gradient of each row, if it can be read."""
    if gradient is None or not gradient.numel():
        return ()
    apart = of_this_process.apart((gradient.device.index,)) if gradient.is_cuda else nullcontext()
    with apart, torch.no_grad():
        rows = gradient.detach().reshape(gradient.shape[0], -1)
        return (HostCopy(torch.linalg.vector_norm(rows, float("inf"), dim=1)),)


def _values(tensor: torch.Tensor, rows: list[int]) -> HostCopy:
    apart = of_this_process.apart((tensor.device.index,)) if tensor.is_cuda else nullcontext()
    with apart, torch.no_grad():
        found = [tensor.detach()[row].reshape(-1)[:_ELEMENTS] for row in rows]
        return HostCopy(torch.cat(found))
