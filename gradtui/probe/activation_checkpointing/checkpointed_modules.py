"""Checkpoint the calls of the modules that the user has chosen. Runs on the thread that calls them.

gradtui attaches nothing to the modules: the wrapper around every module's call looks them up here. A module first undergoes a
trial: in one call it is computed twice, once aside and then for the script. It is checkpointed from the next step on only if
the two results agree to the bit and nothing writes to its arguments. Therefore no module that cannot be recomputed ever reaches
a backward of the script.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from gradtui.dataclass import dataclass
from gradtui.probe.activation_checkpointing import determinism_trial
from gradtui.probe.activation_checkpointing.recomputed_state import RecomputedState
from gradtui.probe.autograd import ModuleCallLogger
from gradtui.probe.runtime import HookSet
from gradtui.probe.torch_private.module_walk import buffers_of, parameters_of
from gradtui.probe.torch_private.saved_hooks import can_checkpoint, checkpointing_of, mark_own_region, may_checkpoint
from gradtui.system.own_frames import hide


@dataclass
class Wanted:
    """One module that the user wants checkpointed."""

    module: weakref.ref[nn.Module]
    path: str
    command: int
    agreed: bool = False
    """The trial gave the same result twice, so its calls are checkpointed."""
    trial: determinism_trial.Trial | None = None
    """The trial, until the next step boundary."""
    moving: set[str] = field(default_factory=set)
    """Names of the buffers that its forward changes."""


class CheckpointedModules:
    """The modules to checkpoint, by module id."""

    def __init__(self, tracer: ModuleCallLogger, hooks: HookSet) -> None:
        self.wanted: dict[int, Wanted] = {}
        self._tracer = tracer
        self._hooks = hooks

    def add(self, module: nn.Module, path: str, command: int) -> None:
        """Checkpoint this module after a successful trial, which its next call is."""
        key = id(module)
        self.wanted[key] = Wanted(weakref.ref(module, lambda _: self._forget(key)), path, command)
        self._tracer.intercepts_calls, self._tracer.bypass = True, False

    def remove(self, module: nn.Module) -> None:
        """Stop checkpointing this module."""
        self._forget(id(module))

    def clear(self) -> None:
        """Stop checkpointing all modules."""
        self.wanted.clear()
        self._tracer.intercepts_calls = False

    def get(self, module: nn.Module) -> Wanted | None:
        """Return the entry of this module, None if it is not to be checkpointed."""
        wanted = self.wanted.get(id(module))
        return wanted if wanted is not None and wanted.module() is module else None

    def _forget(self, key: int) -> None:
        self.wanted.pop(key, None)
        self._tracer.intercepts_calls = bool(self.wanted)

    def run(self, module: nn.Module, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a module: unchanged, twice for the trial, or checkpointed."""
        wanted = self.get(module)
        if wanted is None or not can_checkpoint or not self._hooks.active or not may_checkpoint():
            return call(*args, **kwargs)
        if not wanted.agreed:
            if wanted.trial is not None:
                return call(*args, **kwargs)
            wanted.trial = determinism_trial.Trial()
            return determinism_trial.compare(module, call, args, kwargs, wanted.trial)
        prepared: list[AbstractContextManager[object]] = []

        def prepare() -> None:
            again, tensors = _of_tensors(call, args, kwargs)
            state = RecomputedState(module, wanted.moving)
            tensors += _one_of_each_device(module)
            prepared.append(checkpointing_of(again, tensors, lambda: (nullcontext(), state)))

        self._hooks.guard("checkpointing", prepare)
        if not prepared:
            return call(*args, **kwargs)
        with prepared[0]:
            mark_own_region()
            return call(*args, **kwargs)


def _of_tensors(
    call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """Return the call as a function of the tensors among its arguments, and these tensors, each once.

    torch's checkpoint looks for devices in plain arguments only, and later passes back other objects. A tensor passed twice
    would become two (attention asks whether `query is key`).
    """
    leaves, spec = tree_flatten((args, kwargs))
    indices: dict[int, int] = {}
    tensors: list[torch.Tensor] = []
    where: list[tuple[int, int]] = []
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in indices:
                indices[id(leaf)] = len(tensors)
                tensors.append(leaf)
            where.append((index, indices[id(leaf)]))
            leaves[index] = None

    def again(*values: Any) -> Any:
        filled = list(leaves)
        for index, number in where:
            filled[index] = values[number]
        args, kwargs = tree_unflatten(filled, spec)
        return call(*args, **kwargs)

    return hide(again), tensors


hide(CheckpointedModules.run)


def _one_of_each_device(module: nn.Module) -> list[torch.Tensor]:
    """Return one parameter or buffer of the module for each device except the CPU and meta."""
    by_device = {tensor.device: tensor for tensor in chain(parameters_of(module), buffers_of(module))}
    return [tensor for device, tensor in by_device.items() if device.type not in ("cpu", "meta")]
