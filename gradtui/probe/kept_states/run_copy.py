"""The copy of a run at one step: parameters, buffers, gradients, flags and modes of all models, optimizers, schedulers, scalers
and random generators."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.kept_states.file_contents import FileContents
from gradtui.probe.kept_states.held_state import Container
from gradtui.probe.kept_states.host_memory import HostMemory
from gradtui.probe.kept_states.kept_containers import KeptContainers
from gradtui.probe.kept_states.optimizers import KeptOptimizer
from gradtui.probe.kept_states.places import places_of
from gradtui.probe.kept_states.values import KeptTensor, KeptValue, size_of_copy
from gradtui.probe.model import state_tensors
from gradtui.probe.torch_private.module_walk import modules_of, named_parameters
from gradtui.probe.torch_private.private_names import is_lazy, no_torch_function
from gradtui.probe.torch_private.random_states import saved_random_states, set_random_states

MODEL = "model"
"""The name of a single model, and of one that has none."""


@dataclass(frozen=True)
class CopyDetails:
    """What a copy should know besides what it copies."""

    names: Sequence[str] = ()
    """Those of the models, for a file."""
    copied: Callable[[int], None] | None = None
    """Receives the number of bytes after each copy."""
    spare: int = 0
    """The last so many models may be gone at a return: the script drops the copy of its best weights for a better one."""
    pinnable: int = 0
    """The bytes of host memory that may be pinned for it."""
    containers: Callable[[], Sequence[tuple[str, Container]]] = tuple
    """Returns what the script holds now: dictionaries and lists of tensors, each with another name."""


_NO_DETAILS = CopyDetails()


class RunCopy:
    """Copies the values of a run.

    Args:
        models: the roots of all models, with copies of models such as averages.
        optimizers: all live optimizers. Their parameters count too where no model has them.
        stateful: schedulers and gradient scalers: what has `state_dict` and `load_state_dict`.
        details: see `CopyDetails`.

    Raises:
        IncompleteCopyError: something cannot be copied, so no return could be complete.
    """

    def __init__(
        self,
        models: Iterable[nn.Module],
        optimizers: Iterable[Optimizer],
        stateful: Iterable[Any],
        details: CopyDetails = _NO_DETAILS,
    ) -> None:
        models, optimizers = list(models), list(optimizers)
        needed = models[: len(models) - details.spare]
        self._models = [weakref.ref(each) for each in needed]
        memory = HostMemory(details.copied, details.pinnable)
        with no_torch_function():
            tensors = tensors_of(models, optimizers)
            indexes = {id(each): index for index, each in enumerate(tensors)}
            others = indexes.keys() - map(id, tensors_of(needed, optimizers)) if details.spare else ()
            self._spare = {indexes[each] for each in others}
            names = _unique(details.names, len(models))
            self._places = [places_of(name, model, indexes) for name, model in zip(names, models)]
            self._slots = _slots_of(models, indexes)
            self._tensors = [KeptTensor(each, memory) for each in tensors]
            self._flags = [(weakref.ref(each), each.requires_grad) for each in tensors if each.is_leaf]
            self._leaves = [index for index, each in enumerate(tensors) if each.is_leaf]
            self._gradients = [
                (weakref.ref(each), KeptTensor(each.grad, memory) if each.grad is not None else None)
                for each in tensors
                if each.is_leaf
            ]
            self._modes = [(weakref.ref(each), each.training) for model in models for each in modules_of(model)]
            self._optimizers = [KeptOptimizer(each, memory, indexes) for each in optimizers]
            self._stateful = [
                (weakref.ref(each), type(each).__name__, KeptValue(each.state_dict(), memory)) for each in stateful
            ]
            self._containers = KeptContainers(details.containers, memory)
            memory.wait()
        self.storages = memory.sources
        """The addresses of the memory that was copied."""
        self.nbytes = memory.nbytes
        """The bytes of all copies."""
        self.pinned = memory.pinned
        """The bytes of host memory that are pinned for it."""
        self._random = saved_random_states()

    @property
    def tensors(self) -> int:
        """The number of parameters and buffers."""
        return len(self._tensors)

    def put_into(self, file: FileContents) -> None:
        """Add everything to a file. Raises `IncompleteCopyError` for a tensor that safetensors does not have."""
        names: dict[int, str] = {}
        for model in self._places:
            for path, index in (*model.state.items(), *model.others.items()):
                names.setdefault(index, f"{model.name}/{path}")
        for index in range(len(self._tensors)):
            names.setdefault(index, f"parameter/{index}")
        standing = {index: file.kept(name, self._tensors[index]) for index, name in names.items()}
        file.state |= {
            "models": {
                each.name: {path: standing[index] for path, index in each.state.items()} for each in self._places
            },
            "others": {
                each.name: {path: standing[index] for path, index in each.others.items()} for each in self._places
            },
            "frozen": {each.name: each.frozen for each in self._places},
            "in_eval": {each.name: each.in_eval for each in self._places},
        }
        self._put_gradients(file, names)
        short = {index: name.removeprefix(f"{MODEL}/") for index, name in names.items()}
        file.state["optimizers"] = [
            each.put_into(file, f"optimizer/{at}", short) for at, each in enumerate(self._optimizers)
        ]
        stateful: dict[str, list[Any]] = {"schedulers": [], "scalers": []}
        for _, kind, value in self._stateful:
            found = stateful["scalers" if "Scaler" in kind else "schedulers"]
            found.append(file.value(f"{kind}/{len(found)}", value.content))
        file.state |= stateful
        file.state["containers"] = self._containers.put_into(file)
        file.state["random"] = file.value("random", self._random)
        file.state["left_out"] = file.left_out

    def _put_gradients(self, file: FileContents, names: dict[int, str]) -> None:
        found = {names[index]: each for index, (_, each) in zip(self._leaves, self._gradients) if each is not None}
        gradients = {}
        for name, gradient in found.items():
            if gradient.values is None:
                file.left_out.append(f"gradient/{name} ({gradient.kind})")
            else:
                gradients[name] = file.kept(f"gradient/{name}", gradient)
        file.state["gradients"] = gradients

    def objection(self, optimizers: Iterable[Optimizer] = (), stateful: Iterable[Any] = ()) -> str | None:
        """Return why the run cannot return to this state; None if it can.

        `optimizers` and `stateful` are those of now: what is new would go on as it is.
        """
        if any(reference() is None for reference in self._models):
            return "a model of that step is gone"
        if (added := self._added(optimizers, stateful)) is not None:
            return f"{added} did not exist then"
        for index, kept in enumerate(self._tensors):
            tensor = self._now(index)
            if index in self._spare or (tensor is None and self._has_slot(index)):
                continue
            if tensor is None:
                return "a parameter or buffer of that step is gone"
            if not kept.fits(tensor):
                return "a parameter or buffer has another shape, type or device than then"
        return next((why for each in self._optimizers if (why := each.objection()) is not None), None)

    def _added(self, optimizers: Iterable[Optimizer], stateful: Iterable[Any]) -> str | None:
        known = {id(tensor) for each in self._tensors if (tensor := each.now()) is not None}
        for reference in self._models:
            model = reference()
            for name, parameter in named_parameters(model) if model is not None else ():
                if id(parameter) not in known and not is_lazy(parameter):
                    return f"the parameter {name}"
        kept = {id(owner) for each in self._optimizers if (owner := each.now()) is not None}
        for optimizer in optimizers:
            members = {id(each) for group in optimizer.param_groups for each in group["params"]}
            if id(optimizer) not in kept and not members.isdisjoint(known):
                return f"the {type(optimizer).__name__} that updates its parameters now"
        counting = {id(owner) for reference, _, _ in self._stateful if (owner := reference()) is not None}
        for each in stateful:
            if id(each) not in counting and id(getattr(each, "optimizer", None)) in kept:
                return f"the {type(each).__name__} that sets its learning rate now"
        return None

    def _has_slot(self, index: int) -> bool:
        return index in self._slots and self._slots[index].place() is not None

    def _now(self, index: int) -> torch.Tensor | None:
        """Return the tensor to which a copy belongs now: a module may have put another one in the place of a buffer."""
        kept = self._tensors[index]
        place = self._slots[index].place() if index in self._slots else None
        if place is None:
            return kept.now()
        there = place.get(self._slots[index].name)
        return there if there is kept.now() or kept.fits(there) else None

    def write(self, *, with_random: bool = True) -> None:
        """Write all values back into the same objects, with or without the random states. `objection` must have been None."""
        with no_torch_function():
            # Code of the script may run here. If it fails, nothing else has been written yet.
            for stateful, _, value in self._stateful:
                owner = stateful()
                if owner is not None:
                    owner.load_state_dict(value.written(None))
            self._write_models()
            for each in self._optimizers:
                each.write()
            self._containers.write(each for _, each in self._living())
        if with_random:
            set_random_states(self._random)

    def _write_models(self) -> None:
        for index, slot in self._slots.items():
            place = slot.place()
            if place is not None and self._now(index) is None:
                place[slot.name] = self._tensors[index].made()
        for kept, living in self._living():
            kept.write(living)
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

    def _living(self) -> Iterator[tuple[KeptTensor, torch.Tensor]]:
        """Yield what is written back, with its tensor."""
        for index, kept in enumerate(self._tensors):
            tensor = self._now(index)
            if tensor is not None and (index not in self._spare or kept.fits(tensor)):
                yield kept, tensor

    def differing(self) -> list[str]:
        """Return what is not equal to the copy, in words; empty if every value is."""
        with no_torch_function():
            wrong = sum(not kept.is_equal(tensor) for kept, tensor in self._living())
            optimizers = sum(each.differs() for each in self._optimizers)
            containers = self._containers.differing()
        found = [f"{wrong} of {len(self._tensors)} tensors"] if wrong else []
        return [*found, *containers, *([f"{optimizers} of {len(self._optimizers)} optimizers"] if optimizers else [])]


class _Slot(NamedTuple):
    """Where a module has a buffer, or a tensor that is a plain attribute."""

    module: Callable[[], nn.Module | None]
    is_buffer: bool
    name: str

    def place(self) -> dict[str, Any] | None:
        """Return the dictionary that has it by its name; None if the module is gone."""
        module = self.module()
        if module is None:
            return None
        return module._buffers if self.is_buffer else vars(module)  # noqa: SLF001 - a module's `__setattr__` may be the script's


def _slots_of(models: Iterable[nn.Module], indexes: Mapping[int, int]) -> dict[int, _Slot]:
    """Return by index where buffers and plain attributes are that need no gradient and that one module has once."""
    found: dict[int, _Slot | None] = {}
    for module in {id(module): module for model in models for module in modules_of(model)}.values():
        for is_buffer, named in ((True, module._buffers), (False, vars(module))):  # noqa: SLF001 - see `place`
            for name, tensor in named.items():
                if not isinstance(tensor, torch.Tensor) or tensor.requires_grad:
                    continue
                index = indexes.get(id(tensor))
                if index is not None:
                    found[index] = None if index in found else _Slot(weakref.ref(module), is_buffer, name)
        for tensor in module._parameters.values():  # noqa: SLF001 - as `named_parameters`, without its sets
            found.pop(indexes.get(id(tensor), -1), None)
    return {index: slot for index, slot in found.items() if slot is not None}


def _unique(names: Sequence[str], count: int) -> list[str]:
    """Return `count` names, of which no two are equal. A single model is `MODEL`, as scripts name it."""
    if count == 1:
        return [MODEL]
    found: dict[str, None] = {}
    for at in range(count):
        name = (names[at] if at < len(names) else "") or MODEL
        found[name if name not in found else f"{name} {at}"] = None
    return [*found]


def tensors_of(models: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> list[torch.Tensor]:
    """Return each parameter and buffer once, tensors that are plain attributes of modules, and what only optimizers have."""
    found: dict[int, torch.Tensor] = {}
    for model in models:
        for module in modules_of(model):
            for tensor in _own_tensors(module):
                found.setdefault(id(tensor), tensor)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                found.setdefault(id(tensor), tensor)
    return [tensor for tensor in found.values() if not is_lazy(tensor)]


def size_of(models: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> int:
    """Return about how many bytes a copy of this run takes, without a copy.

    Raises:
        IncompleteCopyError: a tensor cannot be copied.
    """
    optimizers = list(optimizers)
    tensors = tensors_of(models, optimizers)
    gradients = [each.grad for each in tensors if each.is_leaf and each.grad is not None]
    states = state_tensors(*[each.state for each in optimizers])
    return sum(size_of_copy(each) for each in (*tensors, *gradients, *states))


def _own_tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    for named in (module._parameters, module._buffers):  # noqa: SLF001 - as `named_parameters`, without its sets
        yield from (tensor for tensor in named.values() if tensor is not None)
    for tensor in vars(module).values():
        # What a forward has computed and put into an attribute is no state: the next one computes it again.
        if isinstance(tensor, torch.Tensor) and tensor.is_leaf:
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
