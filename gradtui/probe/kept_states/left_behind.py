"""Name what a return does not bring back, although it has changed since. Training thread, when the user asks only.

That is: generators and tensors that the script holds beside its models and optimizers, and numbers in modules and in objects of
the script's classes.

A tensor counts if it is still the same one and was written to: one that is replaced may be a batch, a loss or an output.
"""

from __future__ import annotations

import hashlib
import random
import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.named_tuple import NamedTuple
from gradtui.probe.kept_states.held_state import storage_of
from gradtui.probe.kept_states.optimizers import loose_tensors
from gradtui.probe.model import Held, ModuleTree, held_objects, is_of_script_class
from gradtui.probe.torch_private.unwrap import PLAIN
from gradtui.system.printable import printable

_NUMBERS = (int, float)


class _Written(NamedTuple):
    tensor: weakref.ref[torch.Tensor]
    version: int


class LeftBehind:
    """What the script holds now. `own` are the tensors that a return brings back.

    Nothing is kept alive: of generators there is a digest, of tensors the number of writes to them.
    """

    def __init__(self, tree: ModuleTree, own: Iterable[torch.Tensor]) -> None:
        self._own = {storage_of(each) for each in own} - {None}
        self._found = dict(self._search(tree))

    def changed(self, tree: ModuleTree, *, numbers: bool = True) -> list[str]:
        """Return the names of what has changed since, in the order in which the script has them, with or without `numbers`."""
        found = ((name, now) for name, now in self._search(tree) if numbers or type(now) not in _NUMBERS)
        names = {name: None for name, now in found if _differs(self._found.get(name), now)}
        return [printable(name) for name in names]

    def _search(self, tree: ModuleTree) -> Iterator[tuple[str, Any]]:
        for index, module in tree.live_modules():
            path = tree.modules[index].path
            for name, value in vars(module).items():
                if type(value) in _NUMBERS and not name.startswith("_"):
                    yield (f"{path}.{name}" if path else f"{type(module).__name__}.{name}"), value
        for held in held_objects(tree, of_modules=False):
            yield from self._of_held(held)

    def _of_held(self, held: Held) -> Iterator[tuple[str, Any]]:
        value, kind = held.value, type(held.value)
        if kind in PLAIN:
            if storage_of(value) not in self._own and not value.is_inference():
                yield held.name, _Written(weakref.ref(value), value._version)  # noqa: SLF001 - there is no public name
        elif (state := _state_of(value)) is not None:
            yield held.name, hashlib.sha256(state).digest()
        elif is_of_script_class(kind) and not issubclass(kind, (nn.Module, Optimizer, type)):
            for name, each in [*getattr(value, "__dict__", {}).items()]:
                if type(each) in _NUMBERS:
                    yield f"{held.name}.{name}", each


def own_tensors(tensors: Iterable[torch.Tensor], optimizers: Iterable[Optimizer]) -> Iterator[torch.Tensor]:
    """Yield tensors of a run with their gradients, and those in the state of its optimizers."""
    for tensor in tensors:
        yield tensor
        if tensor.is_leaf and tensor.grad is not None:
            yield tensor.grad
    for optimizer in optimizers:
        yield from loose_tensors(optimizer, {})
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                yield from (each for each in (value if isinstance(value, list) else (value,)) if type(each) in PLAIN)


def _state_of(value: Any) -> bytes | None:
    """Return the state of a random generator; None for anything else, and for a class of the script's own.

    None too for the global ones, which come back: a function may have one as the default of an argument.
    """
    kind = type(value)
    if any(value is each for each in _global_generators()):
        return None
    if kind is torch.Generator:
        return bytes(value.get_state().numpy())
    if kind is random.Random:
        return repr(value.getstate()).encode()
    if kind.__module__.startswith("numpy.random."):
        if kind.__name__ == "Generator":
            return repr(value.bit_generator.state).encode()
        if kind.__name__ == "RandomState":
            return repr([*value.get_state()[1], value.get_state()[2:]]).encode()
    return None


def _global_generators() -> Iterator[Any]:
    yield torch.default_generator
    yield from torch.cuda.default_generators
    yield random._inst  # noqa: SLF001 - what the functions of the module are methods of
    numpy_random = sys.modules.get("numpy.random")
    yield getattr(getattr(numpy_random, "mtrand", None), "_rand", None)


def _differs(before: Any, now: Any) -> bool:
    if before is None:
        return False
    if isinstance(before, _Written) or isinstance(now, _Written):
        is_same = isinstance(before, _Written) and isinstance(now, _Written) and before.tensor() is now.tensor()
        return is_same and before.version != now.version
    is_nan = before != before and now != now
    return bool(before != now) and not is_nan
