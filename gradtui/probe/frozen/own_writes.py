"""Find frozen tensors that the forward of their own module writes: `max_norm` of an embedding, a power iteration.

Version counters tell which tensors a call of a module has written, and bits whether their values differ. An embedding with
`max_norm` raises the counter of its weight also where no row is too long. Runs on the training thread, in sampled steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import nn

from gradtui.probe.frozen.bits import BitSample
from gradtui.probe.torch_private.private_names import operations_are_observed, version_of

_CALLS = 3
"""Calls without a write after which a module is looked at no more, until its mode changes."""
_MAX_BYTES = 64 << 20
"""A few elements of a larger tensor are compared, in place of all of them."""
_STATISTICS = frozenset({"running_mean", "running_var"})
"""Buffers that every forward in train mode writes, as the mode and the flags of their module tell."""
_MAX = 64
"""Maximum number of tensors whose changes are kept."""

_Key = tuple[int, str]
"""Index of a module, and the name of its tensor."""


class OwnWrites:
    """Compares the frozen parameters and the buffers of a module before and after each of its calls."""

    def __init__(self) -> None:
        self.changed: set[_Key] = set()
        """The tensors whose values a call of their module has changed."""
        self._written: set[_Key] = set()
        """The tensors whose counter a call has raised: their bits are read around later calls."""
        self._quiet: Counter[tuple[int, bool]] = Counter()
        """By module and train mode: the calls that have written nothing."""
        self._open: list[tuple[nn.Module, int, dict[str, int], dict[str, BitSample[str]]] | None] = []
        """For each running call: its module, the counters of its tensors, and the bits of some of them."""
        self._compared: list[tuple[_Key, BitSample[str], BitSample[str]]] = []
        """Bits before and after a call that have not arrived yet."""

    def tree_changed(self) -> None:
        """Forget everything: modules have new indexes."""
        for known in (self.changed, self._written, self._quiet, self._open, self._compared):
            known.clear()

    def entered(self, module: nn.Module, index: int) -> None:
        """Handle the beginning of the call of a module; `index` is -1 if it is not listed."""
        if index < 0 or self._quiet[index, module.training] >= _CALLS or operations_are_observed():
            self._open.append(None)
            return
        tensors = dict(_tensors(module))
        # Of an embedding with `max_norm` the first calls change the most rows.
        wanted = {name for name in tensors if (index, name) in self._written or getattr(module, "max_norm", None)}
        bits = {name: _bits(name, tensors[name]) for name in wanted if (index, name) not in self.changed}
        self._open.append((module, index, {name: version_of(tensor) for name, tensor in tensors.items()}, bits))

    def left(self) -> None:
        """Handle the end of the innermost call."""
        call = self._open.pop() if self._open else None
        if call is None:
            return
        module, index, versions, bits = call
        tensors = dict(_tensors(module))
        written = [
            name for name, version in versions.items() if name in tensors and version_of(tensors[name]) != version
        ]
        if not written:
            self._quiet[index, module.training] += 1
        for name in written:
            self._written.add((index, name))
            if name in bits and len(self._compared) < _MAX:
                self._compared.append(((index, name), bits[name], _bits(name, tensors[name])))

    def on_step_post(self) -> set[_Key]:
        """Return the tensors whose values a call has changed, once their bits are on the host."""
        self._open.clear()
        waiting = []
        for key, before, after in self._compared:
            if not (before.is_there and after.is_there):
                waiting.append((key, before, after))
            elif len(self.changed) < _MAX and not all(before.compare(after).values()):
                self.changed.add(key)
        self._compared = waiting
        return self.changed


def _tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the frozen parameters and the saved buffers of a module itself that hold numbers with fractions."""
    temporary = module._non_persistent_buffers_set  # noqa: SLF001 - torch has no public name for it
    named = [*module._parameters.items(), *module._buffers.items()]  # noqa: SLF001 - as `named_parameters`, without its sets
    for name, tensor in named:
        if tensor is None or tensor.requires_grad or name in temporary or name in _STATISTICS:
            continue
        if tensor.is_floating_point() and not tensor.is_inference():
            yield name, tensor


def _bits(name: str, tensor: torch.Tensor) -> BitSample[str]:
    return BitSample([(name, tensor)], few=tensor.nbytes > _MAX_BYTES)
