"""Read the norms of the gradients that only pass through frozen modules, while backward of a sampled step runs. CPU only.

No tensor stores these gradients, so a hook must read them: a pre-hook on the operation that computed a module's output, for
this one backward. A wholly trainable model has none.

* The hook returns nothing and keeps nothing, so autograd accumulates into the same buffers, in place where it does without.
* Python runs the script's signal handlers whenever it runs. In plain python, backward of a graph without Python code is over
  before a handler runs. What a handler raises within a hook would end backward halfway, with some gradients accumulated and
  others not. So a hook is the `send` of a generator, which waits inside its `try`: there is no instruction of a hook outside of
  it. What a handler raises is raised again when backward has ended.
* On CUDA the hooks would run on the engine's threads, and what they allocate would count in the script's peak. No device has
  shown that both do no harm, so nothing is read there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Generator, Iterable
from contextlib import suppress
from time import perf_counter_ns

import torch
from torch.utils.hooks import RemovableHandle

from gradtui.probe.autograd import ModuleOutputs
from gradtui.probe.gradients import norm_of
from gradtui.probe.model import ModuleTree
from gradtui.probe.runtime import HookSet
from gradtui.probe.torch_private.operation_mode import backward_is_compiled, something_is_compiled
from gradtui.probe.torch_private.own_hooks import own_ids
from gradtui.probe.torch_private.private_names import no_torch_function, operations_are_observed
from gradtui.system.no_collection import no_collection

PART = "passing gradients"
_MAX = 128
"""The maximum number of modules whose gradient is read in one backward."""

_REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

_Gradients = tuple[torch.Tensor | None, ...]
_Hook = Generator[None, _Gradients, None]


class PassingGradients:
    """The hooks of one backward at a time."""

    def __init__(self, hooks: HookSet) -> None:
        self.loss_scale: Callable[[], torch.Tensor | None] = _without_scaler
        """Returns the factor by which a loss scaler multiplies the gradients, None without one."""
        self._hooks = hooks
        self._handles: list[RemovableHandle] = []
        self._read: defaultdict[int, list[float]] = defaultdict(list)
        """By module: the norms of its outputs in the present backward."""
        self._unread: set[int] = set()
        """Modules with an output whose gradient could not be read."""
        self._norms: dict[int, float] = {}
        """The norms of the step, which belong to the caller."""
        self._raised: BaseException | None = None
        """What a signal handler of the script has raised in a hook."""
        # Its graph may share operations with this one, and no two threads can run a generator at once.
        hooks.other_begins.append(self._remove)

    def outputs_of(self, tree: ModuleTree, called: Container[int], trains: Iterable[int]) -> ModuleOutputs | None:
        """Return what the walk of a graph is to find: outputs of the frozen modules that the step `called`; None for none.

        `trains` has the modules with a trainable parameter of their own.
        """
        if self._hooks.is_off(PART) or something_is_compiled() or backward_is_compiled():
            return None
        modules = _frozen(tree, called, tree.with_ancestors(trains))
        return ModuleOutputs(modules, tree.parents) if modules else None

    def begin(self, outputs: ModuleOutputs, norms: dict[int, float]) -> None:
        """Add the hooks for the backward that is about to run. Its end writes into `norms`, by module."""
        # The backward of an earlier call has not run if a signal handler of the script raised before it.
        self.drop()
        self._norms = norms
        with own_ids():
            for node, modules_of in outputs.operations.items():
                hook = self._hook(modules_of)
                next(hook)
                self._handles.append(node.register_prehook(hook.send))

    def end(self) -> None:
        """Remove the hooks after backward. Raises what a signal handler of the script raised meanwhile."""
        self._remove()
        if self._read or self._unread:
            with self._hooks.guarded(PART), no_torch_function():
                self._write()
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _write(self) -> None:
        scale = self.loss_scale()
        if scale is not None and not scale.is_cpu:
            self._unread.update(self._read)
        else:
            factor = float(scale) if scale is not None else 1.0
            self._norms |= {module: math.hypot(*norms) / factor for module, norms in self._read.items()}
        for module in self._unread:
            self._norms.pop(module, None)
        self._read.clear()
        self._unread.clear()

    def keep(self, error: BaseException) -> None:
        """Let `end` raise what a signal handler of the script has raised in a hook within backward."""
        self._raised = self._raised or error

    def drop(self) -> None:
        """Remove the hooks: indexes of modules have a new meaning."""
        self._remove()
        self._read.clear()
        self._unread.clear()

    def _remove(self) -> None:
        # Two threads may be here at once.
        with suppress(IndexError):
            while True:
                self._handles.pop().remove()

    def _hook(self, modules_of: dict[int, tuple[int, ...]]) -> _Hook:
        while True:
            try:
                while True:
                    self._read_norms((yield), modules_of)
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - `end` raises it again
                self.keep(error)

    def _read_norms(self, gradients: _Gradients, modules_of: dict[int, tuple[int, ...]]) -> None:
        began = perf_counter_ns()
        with self._hooks.guarded(PART), no_torch_function(), torch.no_grad(), no_collection():
            is_observed = operations_are_observed()
            for output, modules in modules_of.items():
                gradient = gradients[output]
                if gradient is None:
                    continue
                norm = _norm(gradient) if not is_observed else None
                if norm is None:
                    self._unread.update(modules)
                    continue
                for module in modules:
                    self._read[module].append(norm)
        self._hooks.charge(perf_counter_ns() - began)


def _without_scaler() -> None:
    return None


def _frozen(tree: ModuleTree, called: Container[int], trains: Container[int]) -> frozenset[int]:
    """Return the modules to read: those not in `trains` that are in no block of a list of modules.

    A list itself is never called, and has no output.
    """
    found: list[int] = []
    within: set[int] = set()
    for index, module in enumerate(tree.modules):
        if module.parent in within or (module.parent >= 0 and tree.modules[module.parent].name.isdigit()):
            within.add(index)
        elif module.parent >= 0 and module.subtree_parameters and index in called and index not in trains:
            found.append(index)
    return frozenset(found[:_MAX])


def _norm(gradient: torch.Tensor) -> float | None:
    """Return the L2 norm of a gradient without copying it; None for one that is no plain dense tensor on the CPU."""
    if type(gradient) is not torch.Tensor or gradient.layout is not torch.strided or not gradient.is_cpu:
        return None
    if gradient.dtype not in _REAL:
        return None
    repeats = 1
    for dimension, (size, stride) in enumerate(zip(gradient.shape, gradient.stride())):
        if stride == 0 and size > 1:
            # An expanded tensor, such as the gradient of a sum, stores each of its elements once.
            repeats *= size
            gradient = gradient.narrow(dimension, 0, 1)
    ordered = gradient.permute(sorted(range(gradient.dim()), key=gradient.stride, reverse=True))
    if ordered.is_contiguous():
        norm = norm_of(ordered)
    else:
        norm = torch.linalg.vector_norm(gradient, dtype=torch.float32 if gradient.itemsize == 2 else None)
    return float(norm) * math.sqrt(repeats)
