"""The copy of a run at one step: parameters, buffers, gradients, flags and modes of all models, optimizers, schedulers, scalers
and random generators."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.probe.kept_states.host_memory import HostMemory
from gradtui.probe.kept_states.optimizers import KeptOptimizer
from gradtui.probe.kept_states.values import KeptTensor, KeptValue
from gradtui.probe.torch_private.private_names import is_lazy, no_torch_function
from gradtui.probe.torch_private.random_states import saved_random_states, set_random_states


class RunCopy:
    """Copies the values of a run.

    Args:
        models: the roots of all models, with copies of models such as averages.
        optimizers: all live optimizers. Their parameters count too where no model has them.
        stateful: schedulers and gradient scalers: what has `state_dict` and `load_state_dict`.

    Raises:
        IncompleteCopyError: something cannot be copied, so no return could be complete.
    """

    def __init__(self, models: Iterable[nn.Module], optimizers: Iterable[Optimizer], stateful: Iterable[Any]) -> None:
        models, optimizers = list(models), list(optimizers)
        self._models = [weakref.ref(each) for each in models]
        memory = HostMemory()
        with no_torch_function():
            tensors = tensors_of(models, optimizers)
            self._tensors = [KeptTensor(each, memory) for each in tensors]
            self._flags = [(weakref.ref(each), each.requires_grad) for each in tensors if each.is_leaf]
            self._gradients = [
                (weakref.ref(each), KeptTensor(each.grad, memory) if each.grad is not None else None)
                for each in tensors
                if each.is_leaf
            ]
            self._modes = [(weakref.ref(each), each.training) for model in models for each in model.modules()]
            self._optimizers = [KeptOptimizer(each, memory) for each in optimizers]
            self._stateful = [(weakref.ref(each), KeptValue(each.state_dict(), memory)) for each in stateful]
        self._random = saved_random_states()

    @property
    def nbytes(self) -> int:
        """The bytes of all copies."""
        own = sum(each.nbytes for each in self._tensors)
        gradients = sum(each.nbytes for _, each in self._gradients if each is not None)
        return own + gradients + sum(each.nbytes for each in self._optimizers)

    @property
    def tensors(self) -> int:
        """The number of parameters and buffers."""
        return len(self._tensors)

    def objection(self) -> str | None:
        """Return why the run cannot return to this state; None if it can."""
        if any(reference() is None for reference in self._models):
            return "a model of that step is gone"
        for kept in self._tensors:
            tensor = kept.now()
            if tensor is None:
                return "a parameter or buffer of that step is gone"
            if not kept.fits(tensor):
                return "a parameter or buffer has another shape, type or device than then"
        return next((why for each in self._optimizers if (why := each.objection()) is not None), None)

    def write(self, *, with_random: bool = True) -> None:
        """Write all values back into the same objects, with or without the random states. `objection` must have been None."""
        with no_torch_function():
            # Code of the script may run here. If it fails, nothing else has been written yet.
            for stateful, value in self._stateful:
                owner = stateful()
                if owner is not None:
                    owner.load_state_dict(value.written(None))
            self._write_models()
            for each in self._optimizers:
                each.write()
        if with_random:
            set_random_states(self._random)

    def _write_models(self) -> None:
        for kept in self._tensors:
            if (tensor := kept.now()) is not None:
                kept.write(tensor)
        for reference, flag in self._flags:
            tensor = reference()
            if tensor is not None and tensor.is_leaf and tensor.requires_grad is not flag:
                tensor.requires_grad_(flag)
        for reference, gradient in self._gradients:
            _write_gradient(reference(), gradient)
        for module_reference, training in self._modes:
            module = module_reference()
            if module is not None and module.training is not training:
                module.training = training

    def differing(self) -> list[str]:
        """Return what is not equal to the copy, in words; empty if every value is."""
        with no_torch_function():
            wrong = sum(not kept.is_equal(tensor) for kept in self._tensors if (tensor := kept.now()) is not None)
            optimizers = sum(each.differs() for each in self._optimizers)
        found = [f"{wrong} of {len(self._tensors)} tensors"] if wrong else []
        return [*found, *([f"{optimizers} of {len(self._optimizers)} optimizers"] if optimizers else [])]


def tensors_of(models: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> list[torch.Tensor]:
    """Return each parameter and buffer once, tensors that are plain attributes of modules, and what only optimizers have."""
    found: dict[int, torch.Tensor] = {}
    for model in models:
        for module in model.modules():
            for tensor in _own_tensors(module):
                found.setdefault(id(tensor), tensor)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                found.setdefault(id(tensor), tensor)
    return [tensor for tensor in found.values() if not is_lazy(tensor)]


def size_of(models: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> int:
    """Return about how many bytes a copy of this run takes, without a copy."""
    optimizers = list(optimizers)
    tensors = tensors_of(models, optimizers)
    gradients = [each.grad for each in tensors if each.is_leaf and each.grad is not None]
    states = [
        value
        for optimizer in optimizers
        for state in optimizer.state.values()
        if isinstance(state, dict)
        for value in state.values()
        if isinstance(value, torch.Tensor)
    ]
    return sum(each.nbytes for each in (*tensors, *gradients, *states) if each.layout is torch.strided)


def _own_tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    for named in (module._parameters, module._buffers, vars(module)):  # noqa: SLF001 - as `named_parameters`, without its sets
        for tensor in named.values():
            if isinstance(tensor, torch.Tensor):
                yield tensor


def _write_gradient(tensor: torch.Tensor | None, kept: KeptTensor | None) -> None:
    if tensor is None:
        return
    if kept is None:
        tensor.grad = None
    elif kept.fits(tensor.grad) and tensor.grad is not None:
        kept.write(tensor.grad)
    else:
        tensor.grad = kept.made()
