"""Save and restore the state around a recomputation, so that it runs as the first computation did and leaves no side effects.

`torch.utils.checkpoint` preserves torch's random state and autocast. A module may also draw Python or NumPy random numbers,
count its calls, and change its buffers (running statistics, a power iteration). A recomputation would find other values and
change them a second time. Runs on the thread that runs the module, and on the thread of its backward.
"""

from __future__ import annotations

import random
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from gradtui.probe.torch_private.module_walk import modules_of, named_modules
from gradtui.probe.torch_private.private_names import version_of

SMALL = 1 << 16
"""Maximum size in bytes of a buffer that is always saved. A larger buffer is saved only if the trial found that it changes."""

PLAIN = (int, float, str, bool, type(None))


class RecomputedState:
    """A context manager for a recomputation: inside, the state is as of construction; on exit, as it was on entry.

    `moving` has the names of larger buffers that the module's forward changes; None saves all buffers.
    """

    def __init__(self, module: nn.Module, moving: set[str] | None) -> None:
        copies: dict[int, torch.Tensor] = {}
        self._modules = [_ModuleState(path, each, moving, copies) for path, each in named_modules(module)]
        self._sources = _random_sources(module)
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
    """The buffers and plain attributes of one module. Nothing else of the module is kept alive."""

    def __init__(self, path: str, module: nn.Module, moving: set[str] | None, copies: dict[int, torch.Tensor]) -> None:
        self._module = weakref.ref(module)
        self._plain = {name: value for name, value in vars(module).items() if type(value) in PLAIN}
        self._kept: dict[str, torch.Tensor] = {}
        for name, buffer in vars(module)["_buffers"].items():
            if buffer is not None and (moving is None or buffer.nbytes <= SMALL or _name(path, name) in moving):
                if id(buffer) not in copies:
                    copies[id(buffer)] = buffer.detach().clone()
                self._kept[name] = copies[id(buffer)]
        self._present: tuple[dict[str, Any], dict[str, Any]] = ({}, {})

    def enter(self) -> None:
        module = self._module()
        if module is None:
            return
        self._present = dict(vars(module)), dict(vars(module)["_buffers"])
        vars(module).update(self._plain)
        # A clone of the saved copy: a retained graph may be recomputed more than once.
        vars(module)["_buffers"].update({name: copy.clone() for name, copy in self._kept.items()})

    def leave(self) -> None:
        module = self._module()
        if module is None:
            return
        attributes, buffers = self._present
        self._present = ({}, {})
        _put_back(vars(module), attributes)
        _put_back(vars(module)["_buffers"], buffers)


def _put_back(present: dict[str, Any], before: dict[str, Any]) -> None:
    for name in [name for name in present if name not in before]:
        del present[name]
    present.update(before)


def moved_buffers(module: nn.Module) -> Callable[[], set[str]]:
    """Return a function that returns the names of the buffers written to or replaced since.

    Names rather than objects, since a buffer that each forward replaces is another object in every step.
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
    """Yield (name, buffer) for every name of a buffer in a module; `named_buffers` yields the first name only."""
    for path, each in named_modules(module):
        for name, buffer in vars(each)["_buffers"].items():
            if buffer is not None:
                yield _name(path, name), buffer


def _name(path: str, name: str) -> str:
    return f"{path}.{name}"


def _random_sources(module: nn.Module) -> list[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Return getters and setters of Python's and NumPy's global random state, and of the module's own generators."""
    sources: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [(random.getstate, random.setstate)]
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        sources.append((numpy_random.get_state, numpy_random.set_state))
    attributes = ((each, name, value) for each in modules_of(module) for name, value in vars(each).items())
    return sources + [_source_of(*each) for each in attributes if isinstance(each[2], torch.Generator)]


def _source_of(
    module: nn.Module, name: str, of: torch.Generator
) -> tuple[Callable[[], Any], Callable[[torch.Tensor | None], None]]:
    # A generator has no weak references before torch 2.11.
    owner, known = weakref.ref(module), id(of)

    def generator() -> torch.Generator | None:
        held = vars(owner() or object).get(name)
        return held if isinstance(held, torch.Generator) and id(held) == known else None

    def write(state: torch.Tensor | None) -> None:
        if (living := generator()) is not None and state is not None:
            living.set_state(state)

    return lambda: living.get_state() if (living := generator()) is not None else None, write
