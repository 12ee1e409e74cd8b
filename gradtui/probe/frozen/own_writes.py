"""Find frozen tensors that the forward of their own module writes: `max_norm` of an embedding, a power iteration.

Version counters tell which tensors a call of a module has written, and bits whether their values differ. An embedding with
`max_norm` raises the counter of its weight also where no row is too long. Runs on the training thread, in sampled steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

import torch
from torch import nn

from gradtui.named_tuple import NamedTuple
from gradtui.probe.frozen.bits import BitSample
from gradtui.probe.model import ModuleTree
from gradtui.probe.torch_private.private_names import no_torch_function, operations_are_observed, version_of

_CALLS = 3
"""Calls without a write after which a module is looked at no more, until its mode changes."""
_MAX_BYTES = 64 << 20
"""A few elements of a larger tensor are compared, in place of all of them."""
_STATISTICS = frozenset({"running_mean", "running_var"})
"""Buffers that every forward in train mode writes, as the mode and the flags of their module tell."""
_QUANTIZATION = "torch.ao.quantization."
"""The package of torch's observers and fake quantisers."""
_MAX = 64
"""Maximum number of tensors whose changes are kept."""

_Key = tuple[int, str]
"""Index of a module, and the name of its tensor."""


class _Call(NamedTuple):
    """A call that is running."""

    module: nn.Module
    number: int
    """Index of the module."""
    depth: int
    versions: dict[str, int]
    """The counters of its tensors."""
    bits: dict[str, BitSample[str]]
    """The bits of some of them."""


class OwnWrites:
    """Compares the frozen parameters and the buffers of a module before and after each of its calls."""

    def __init__(self) -> None:
        self.modules: Container[int] = ()
        """Indexes of the modules whose calls are looked at."""
        self.depth = -1
        self.changed: set[_Key] = set()
        """The tensors whose values a call of their module has changed."""
        self._written: set[_Key] = set()
        """The tensors whose counter a call has raised: their bits are read around later calls."""
        self._quiet: Counter[tuple[int, bool]] = Counter()
        """By module and train mode: the calls that have written nothing."""
        self._open: list[_Call] = []
        self._compared: list[tuple[_Key, BitSample[str], BitSample[str]]] = []
        """Bits before and after a call that have not arrived yet."""

    def tree_changed(self) -> None:
        """Forget everything: modules have new indexes."""
        self.modules = ()
        for known in (self.changed, self._written, self._quiet, self._open, self._compared):
            known.clear()
        self.depth = -1

    def choose(self, tree: ModuleTree) -> None:
        """Choose modules with frozen parameters or saved buffers: no observers, and none that wrote nothing so far."""
        chosen = {buffer.module for buffer in tree.buffers if buffer.persistent and _is_fractional(buffer.dtype)}
        for module, reference in zip(tree.owners, tree.parameter_refs):
            tensor = reference()
            if tensor is not None and not tensor.requires_grad:
                chosen.add(module)
        for index in [*chosen]:
            module_ = tree.module_refs[index]()
            if module_ is None or self._quiet[index, module_.training] >= _CALLS or _is_observer(module_):
                chosen.discard(index)
        self.modules = chosen

    def entered(self, module: nn.Module, index: int, depth: int) -> None:
        """Handle the beginning of a call of one of the modules."""
        if self._quiet[index, module.training] >= _CALLS or operations_are_observed():
            return
        # A subclass of tensors is asked nothing.
        with no_torch_function():
            self._begin(module, index, depth)

    def _begin(self, module: nn.Module, index: int, depth: int) -> None:
        tensors = _tensors(module)
        # Of an embedding with `max_norm` the first calls change the most rows.
        wanted = {name for name in tensors if (index, name) in self._written or getattr(module, "max_norm", None)}
        bits = {name: _bits(name, tensors[name]) for name in wanted if (index, name) not in self.changed}
        versions = {name: version_of(tensor) for name, tensor in tensors.items()}
        self._open.append(_Call(module, index, depth, versions, bits))
        self.depth = depth

    def left(self) -> None:
        """Handle the end of the innermost call that was looked at."""
        call = self._open.pop()
        self.depth = self._open[-1].depth if self._open else -1
        with no_torch_function():
            self._compare(call)

    def _compare(self, call: _Call) -> None:
        now = _tensors(call.module)
        written = [name for name, version in call.versions.items() if name in now and version_of(now[name]) != version]
        if not written:
            self._quiet[call.number, call.module.training] += 1
        for name in written:
            self._written.add((call.number, name))
            if name in call.bits and len(self._compared) < _MAX:
                self._compared.append(((call.number, name), call.bits[name], _bits(name, now[name])))

    def on_step_post(self) -> set[_Key]:
        """Return the tensors whose values a call has changed, once their bits are on the host."""
        self._open.clear()
        self.depth = -1
        waiting = []
        for key, before, after in self._compared:
            if not (before.is_there and after.is_there):
                waiting.append((key, before, after))
            elif len(self.changed) < _MAX and not all(before.compare(after).values()):
                self.changed.add(key)
        self._compared = waiting
        return self.changed


def _is_observer(module: nn.Module) -> bool:
    """Return whether a module is an observer or a fake quantiser of torch: it is meant to follow a frozen part."""
    return any(each.__module__.startswith(_QUANTIZATION) for each in type(module).__mro__)


def _is_fractional(dtype: str) -> bool:
    return "float" in dtype


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the frozen parameters and the saved buffers of a module itself that hold numbers with fractions."""
    temporary = module._non_persistent_buffers_set  # noqa: SLF001 - torch has no public name for it
    named = {**module._parameters, **module._buffers}  # noqa: SLF001 - as `named_parameters`, without its sets
    return {
        name: tensor
        for name, tensor in named.items()
        if tensor is not None
        and not tensor.requires_grad
        and name not in temporary
        and name not in _STATISTICS
        and tensor.is_floating_point()
        and not tensor.is_inference()
    }


def _bits(name: str, tensor: torch.Tensor) -> BitSample[str]:
    return BitSample([(name, tensor)], few=tensor.nbytes > _MAX_BYTES)
