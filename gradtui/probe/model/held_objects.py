"""Name what the script holds: attributes of modules, its global variables, and variables of its active functions.

The search follows containers, closures, and instances of the script's own classes. It calls nothing that these define, and ends
after a number of entries or a time. Nothing is kept. Runs on the training thread, rarely.
"""

from __future__ import annotations

import builtins
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from inspect import CO_OPTIMIZED
from itertools import chain, islice
from time import thread_time_ns
from types import CellType, FrameType, FunctionType, MemberDescriptorType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from gradtui.named_tuple import NamedTuple
from gradtui.probe.model.module_tree import ModuleTree
from gradtui.system.own_frames import is_of_script

_ENTRIES, _NS = 200_000, 100_000_000
"""The search ends after this many entries, and after this time of the processor in nanoseconds."""
_BATCH = 256
"""Number of entries between two looks at the clock."""
_KEY_LENGTH = 30
_PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None), ModuleType})
_REGISTRIES = ("_parameters", "_modules")
_READERS = frozenset({"locals", "vars", "dir", "eval", "exec"})
"""Functions that read the variables of their caller."""


class Held(NamedTuple):
    """An object that the script holds, and where."""

    name: str
    """How the script reaches it: `2.gate` for an attribute of a listed module, `history[3]`."""
    of_module: bool
    """Whether it is an attribute of a listed module, or reached through one."""
    value: Any

    @property
    def container(self) -> str:
        """The name without what is in brackets: that of the variable or attribute."""
        return self.name.partition("[")[0]


def held_objects(tree: ModuleTree, *, of_modules: bool = True) -> Iterator[Held]:
    """Yield what modules of the tree hold besides parameters and submodules, then what variables of the script hold.

    Without `of_modules` the time does not depend on the size of the models.
    """
    began = thread_time_ns()
    modules = [Held(tree.modules[index].path, True, module) for index, module in tree.live_modules()]
    listed = {id(each.value) for each in modules}
    waiting = deque(modules if of_modules else ())
    seen = {id(builtins.__dict__), *listed, *(id(parameter) for _, parameter in tree.live_parameters())}
    waiting.extend(Held(name, False, value) for name, value in _variables(seen))
    entries = 0
    while waiting:
        place = waiting.popleft()
        for name, value in _parts(place, is_listed=id(place.value) in listed):
            entries += 1
            if entries > _ENTRIES or (entries % _BATCH == 0 and thread_time_ns() - began > _NS):
                return
            if type(value) in _PLAIN or id(value) in seen:
                continue
            seen.add(id(value))
            held = Held(name, place.of_module, value)
            if not issubclass(type(value), torch.Tensor):
                waiting.append(held)
            yield held


def _variables(seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield containers of the script's variables, without a name of their own: `_parts` names what is in them."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - what `inspect.currentframe` is
    spaces, functions = [], []
    while frame is not None:
        if is_of_script(frame.f_code.co_filename):
            spaces.append(frame.f_globals)
            if frame.f_code.co_name != "<module>":
                functions.append(frame)
        frame = frame.f_back
    spaces.append(vars(sys.modules["__main__"]))
    spaces += [vars(each) for each in [*sys.modules.values()] if type(each) is ModuleType and _is_of_script(each)]
    for space in spaces:
        if id(space) not in seen:
            seen.add(id(space))
            yield "", space
    for each in functions:
        yield "", locals_of(each)


def locals_of(frame: FrameType) -> dict[str, Any]:
    """Return the variables of an active function; none where reading them might show in the script.

    Before Python 3.13 a function's frame keeps the dict that it returns, with all values, and `locals()` returns the same one.
    The body of a class has its variables in the dict itself.
    """
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & CO_OPTIMIZED:
        return dict(frame.f_locals)
    if sys.gettrace() is not None or not _READERS.isdisjoint(frame.f_code.co_names):
        return {}
    kept = frame.f_locals
    values = dict(kept)
    kept.clear()
    return values


def _is_of_script(module: ModuleType) -> bool:
    file = vars(module).get("__file__")
    return isinstance(file, str) and is_of_script(file)


def _parts(held: Held, *, is_listed: bool) -> Iterable[tuple[str, Any]]:
    # The type is asked, because a proxy of the script's might answer by running code.
    name, value, kind = held.name, held.value, type(held.value)
    if issubclass(kind, dict):
        return ((_of_key(name, key), each) for key, each in [*islice(dict.items(value), _ENTRIES)])
    for container in (list, tuple, deque, set, frozenset):
        if issubclass(kind, container):
            return ((f"{name}[{at}]", each) for at, each in enumerate([*container.__iter__(value)]))
    if issubclass(kind, nn.Module):
        return _of_module(name, vars(value), is_listed=is_listed)
    if kind is FunctionType:
        return _of_function(name, value)
    if kind is MethodType:
        return ((name, value.__self__),)
    if kind is partial:
        return ((name, each) for each in (value.func, *value.args, *value.keywords.values()))
    if issubclass(kind, type):
        members = [*vars(value).items()] if is_of_script_class(value) else []
        return ((f"{value.__name__}.{key}", each) for key, each in members)
    if kind is not SimpleNamespace and not is_of_script_class(kind):
        return ()
    return ((f"{name}.{key}", each) for key, each in _attributes(value, kind))


def _attributes(value: Any, kind: type) -> Iterator[tuple[str, Any]]:
    attributes = getattr(value, "__dict__", None)
    if type(attributes) is dict:
        yield from [*attributes.items()]
    for each in kind.__mro__:
        for key, member in vars(each).items() if "__slots__" in vars(each) else ():
            if type(member) is MemberDescriptorType:
                with suppress(AttributeError):  # nothing is in it yet
                    yield key, member.__get__(value)


def _of_key(name: str, key: object) -> str:
    if not name:
        return str(key)
    shown = repr(key) if type(key) in (str, int) else "…"
    return f"{name}[{shown if len(shown) <= _KEY_LENGTH else '…'}]"


def _of_module(name: str, attributes: dict[str, Any], *, is_listed: bool) -> Iterator[tuple[str, Any]]:
    prefix = f"{name}." if name else ""
    for key, each in [*attributes.items()]:
        if key == "_buffers" or (key in _REGISTRIES and not is_listed):
            yield from ((f"{prefix}{part}", value) for part, value in [*each.items()])
        elif key not in _REGISTRIES:
            yield f"{prefix}{key}", each


def _of_function(name: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        if isinstance(cell, CellType):
            try:
                yield f"{variable} of {function.__qualname__.replace('<locals>.', '')}()", cell.cell_contents
            except ValueError:  # nothing is in it yet
                continue
    yield from ((name, each) for each in chain(function.__defaults__ or (), (function.__kwdefaults__ or {}).values()))


def is_of_script_class(kind: type) -> bool:
    """Return whether a class is defined in the script or in a module beside it."""
    module = sys.modules.get(kind.__module__)
    return kind.__module__ == "__main__" or (type(module) is ModuleType and _is_of_script(module))
