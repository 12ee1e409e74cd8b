"""Find checkpoints of the script whose recomputation does not do what forward did. Training thread, and that of backward.

Its random numbers differ from those of forward (`preserve_rng_state=False`), or it writes to buffers a second time, such as the
running statistics of a BatchNorm. A module that gradtui checkpoints has its buffers back after the recomputation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from gradtui.probe.autograd import GraphSummary
from gradtui.probe.model import ModuleTree
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import version_of
from gradtui.protocol.events import RecomputationDiffers
from gradtui.system.own_frames import is_of_script, line_at

_MAX_BYTES = 1 << 16
"""Size of the largest buffer on the CPU whose values are compared. Statistics count as written if their version rose."""
_MAX = 64


class UnfaithfulRecomputation:
    """Reports what differs, whenever a sampled step shows something new."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock = context.emit, context.clock
        self.is_on = False
        """Whether a backward over checkpointed regions is running. A plain attribute, since each sampled step reads it."""
        self._tree = ModuleTree()
        self._modules: set[int] = set()
        """The modules that ran in regions."""
        self._buffers: list[tuple[int, torch.Tensor, int, torch.Tensor | None]] = []
        """Their buffers until backward has ended, with the index of the module, version and values."""
        self._regions: dict[str, None] = {}
        """The regions that draw random numbers anew, in words."""
        self._layers: dict[str, None] = {}
        """Their random layers."""
        self._rewritten: dict[str, None] = {}
        """The modules whose buffers are written again."""
        self._norms: set[str] = set()
        self._reported = 0

    def on_backward(self, facts: GraphSummary, tree: ModuleTree) -> None:
        """Read the buffers of modules in checkpointed regions, before a backward over this graph."""
        self.is_on, self._tree, self._modules = True, tree, facts.regions.modules
        self._buffers = [(index, *each) for index, module in self._running() for each in _read(module)]

    def drew(self, function: object) -> None:
        """Handle that the recomputation of a region has drawn random numbers that torch does not restore."""
        path = self._name(function)
        inside = {id(module) for module in _modules_of(function)}
        for index, module in self._running():
            if _is_random(module) and (not inside or id(module) in inside) and len(self._layers) < _MAX:
                self._layers[self._path(index)] = None
        if len(self._regions) < _MAX:
            self._regions[path] = None

    def on_backward_post(self, step: int) -> None:
        """Compare the buffers after that backward, and report what is new."""
        for index, buffer, version, values in self._buffers:
            module = self._tree.module_refs[index]()
            if version_of(buffer) == version or (values is not None and torch.equal(values, buffer)):
                continue
            if isinstance(module, _NormBase):
                self._norms.add(self._path(index))
            elif values is None:
                continue
            if len(self._rewritten) < _MAX:
                self._rewritten[self._path(index)] = None
        self.is_on, self._buffers, self._tree = False, [], ModuleTree()
        found = len(self._regions) + len(self._layers) + len(self._rewritten)
        if found != self._reported:
            self._reported = found
            event = tuple(self._regions), tuple(self._layers), tuple(self._rewritten), len(self._norms)
            self._emit(RecomputationDiffers(self._clock.at(), step, *event))

    def _running(self) -> Iterator[tuple[int, nn.Module]]:
        return ((index, module) for index, module in self._tree.live_modules() if index in self._modules)

    def _path(self, index: int) -> str:
        module = self._tree.modules[index]
        return module.path or module.name

    def _name(self, function: object) -> str:
        owner, function = _owner_of(function)
        index = self._tree.index_of(owner)
        if index >= 0:
            name = getattr(function, "__name__", "")
            return self._path(index) if function is owner or name in _CALLS else f"{self._path(index)}.{name}"
        code = owner.__code__ if isinstance(owner, FunctionType) else None
        if code is not None and is_of_script(code.co_filename):
            line = line_at(code.co_filename, code.co_firstlineno)
            return f"{code.co_name} of {line.file}, line {line.line}"
        return "a checkpoint"


_CALLS = ("forward", "__call__", "_call_impl", "_wrapped_call_impl")
"""Methods that stand for their module."""


def _owner_of(function: object) -> tuple[object, object]:
    """Return the object whose method a region runs, or else its function or module, and what the region runs itself."""
    while isinstance(function, partial):
        function = function.func
    return (function.__self__ if isinstance(function, MethodType) else function), function


def _modules_of(function: object) -> Iterator[nn.Module]:
    """Yield the modules below the one that a region runs; none if it runs a function."""
    owner, _ = _owner_of(function)
    return iter(owner.modules()) if isinstance(owner, nn.Module) else iter(())


def _is_random(module: nn.Module) -> bool:
    dropout = getattr(module, "p", None) if isinstance(module, nn.modules.dropout._DropoutNd) else None  # noqa: SLF001
    return module.training and bool(dropout)


def _read(module: nn.Module) -> Iterator[tuple[torch.Tensor, int, torch.Tensor | None]]:
    for buffer in module._buffers.values():  # noqa: SLF001 - without the parents' names
        if buffer is not None:
            is_small = buffer.device.type == "cpu" and buffer.nbytes <= _MAX_BYTES
            yield buffer, version_of(buffer), buffer.detach().clone() if is_small else None
