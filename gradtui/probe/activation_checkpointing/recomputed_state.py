"""What the code of a module finds and leaves besides its result, so that it can run again as it ran and leave nothing.

`torch.utils.checkpoint` keeps torch's random state and autocast. A module may also draw from Python's or NumPy's random
numbers, count its calls, and move its buffers (running statistics, a power iteration): run again it would meet other values,
and leave them moved twice. Runs on the thread that runs the module, and on the one of its backward.
"""

from __future__ import annotations

import random
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from gradtui.probe.torch_private.private_names import version_of

SMALL = 1 << 16
"""Bytes up to which a buffer is always kept; a larger one only where it was seen to move."""

_PLAIN = (int, float, str, bool, type(None))


class RecomputedState:
    """A context for running a module again: within it everything is as it was when this was made, after it as before.

    `moving` are the names of larger buffers that the module's forward changes; None keeps all buffers.
    """

    def __init__(self, module: nn.Module, moving: set[str] | None) -> None:
        copies: dict[int, torch.Tensor] = {}
        self._modules = [_ModuleState(path, each, moving, copies) for path, each in module.named_modules()]
        self._sources = _random_sources()
        self._then = [read() for read, _ in self._sources]
        self._now: list[Any] = []

    def __enter__(self) -> None:
        self._now = [read() for read, _ in self._sources]
        for (_, write), state in zip(self._sources, self._then):
            write(state)
        for state in self._modules:
            state.enter()

    def __exit__(self, *error: object) -> None:
        for state in self._modules:
            state.leave()
        for (_, write), state in zip(self._sources, self._now):
            write(state)
        self._now = []


class _ModuleState:
    """The buffers and the plain attributes of one module. Nothing else of it is kept alive."""

    def __init__(self, path: str, module: nn.Module, moving: set[str] | None, copies: dict[int, torch.Tensor]) -> None:
        self._module = weakref.ref(module)
        attributes = vars(module)
        self._plain = {name: value for name, value in attributes.items() if type(value) in _PLAIN}
        self._generators = [
            (weakref.ref(value), value.get_state())
            for value in attributes.values()
            if isinstance(value, torch.Generator)
        ]
        self._kept: dict[str, torch.Tensor] = {}
        for name, buffer in vars(module)["_buffers"].items():
            if buffer is not None and (moving is None or buffer.nbytes <= SMALL or _name(path, name) in moving):
                if id(buffer) not in copies:
                    copies[id(buffer)] = buffer.detach().clone()
                self._kept[name] = copies[id(buffer)]
        self._present: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        self._present_generators: list[torch.Tensor] = []

    def enter(self) -> None:
        module = self._module()
        if module is None:
            return
        self._present = dict(vars(module)), dict(vars(module)["_buffers"])
        vars(module).update(self._plain)
        # A copy of the copy: a graph that is kept may be computed again once more.
        vars(module)["_buffers"].update({name: copy.clone() for name, copy in self._kept.items()})
        for reference, then in self._generators:
            generator = reference()
            if generator is not None:
                self._present_generators.append(generator.get_state())
                generator.set_state(then)

    def leave(self) -> None:
        module = self._module()
        if module is None:
            return
        attributes, buffers = self._present
        self._present = ({}, {})
        _put_back(vars(module), attributes)
        _put_back(vars(module)["_buffers"], buffers)
        for (reference, _), now in zip(self._generators, self._present_generators):
            generator = reference()
            if generator is not None:
                generator.set_state(now)
        self._present_generators = []


def _put_back(present: dict[str, Any], before: dict[str, Any]) -> None:
    for name in [name for name in present if name not in before]:
        del present[name]
    present.update(before)


def moved_buffers(module: nn.Module) -> Callable[[], set[str]]:
    """Asked for later, the names of the buffers that have been written to or replaced since.

    Names, since a buffer that each forward replaces is another object in every step.
    """
    before = {name: (weakref.ref(buffer), version_of(buffer)) for name, buffer in _named_buffers(module)}

    def moved() -> set[str]:
        return {
            name
            for name, buffer in _named_buffers(module)
            if name not in before or before[name][0]() is not buffer or before[name][1] != version_of(buffer)
        }

    return moved


def _named_buffers(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, buffer) by every name that a buffer has in a module; `named_buffers` gives the first name only."""
    for path, each in module.named_modules():
        for name, buffer in vars(each)["_buffers"].items():
            if buffer is not None:
                yield _name(path, name), buffer


def _name(path: str, name: str) -> str:
    return f"{path}.{name}"


def _random_sources() -> list[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """How to read and write Python's and NumPy's global random state."""
    sources: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [(random.getstate, random.setstate)]
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        sources.append((numpy_random.get_state, numpy_random.set_state))
    return sources
