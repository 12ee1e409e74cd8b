"""Find kept results of `Module.state_dict()` that are the live weights. Runs on the training thread.

`state_dict()` copies nothing: its tensors share memory, and the version counter, with those of the module.
"""

from __future__ import annotations

import ast
import linecache
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cache
from typing import Any

import torch
from torch import nn

from gradtui.dataclass import dataclass
from gradtui.probe.script_calls.sites import site_of
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import version_of
from gradtui.protocol.call_order import CallSite
from gradtui.protocol.events import StateAliased

_KEPT = 64
_LOOKED_AT = 8
"""Tensors of each state that are followed."""
_DEPTH = 4
_STEPS = 5
"""Steps from which on a state that is kept under the name of the best one should have been copied."""
_BEST = "best"
_COPIES = ("dump", "save_", "deepcopy", "clone")
"""Parts of the names of functions that copy what they are given, besides `torch.save`."""


@dataclass
class _Kept:
    """One result of `state_dict()`."""

    module: str
    tensors: list[tuple[weakref.ref[torch.Tensor], int]]
    """Some of its tensors, with their versions then."""
    count: int
    step: int
    name: str
    site: CallSite | None
    is_saved: bool = False
    told: set[str] = field(default_factory=set)

    def alive(self) -> list[tuple[torch.Tensor, int]]:
        return [(tensor, version) for reference, version in self.tensors if (tensor := reference()) is not None]


class KeptStates:
    """Follows the newest results of `state_dict()`. `steps` returns the number of steps so far, with buffered ones."""

    def __init__(self, context: ProbeContext, steps: Callable[[], int]) -> None:
        self._emit, self._clock, self._steps = context.emit, context.clock, steps
        self._kept: deque[_Kept] = deque(maxlen=_KEPT)

    def made(self, module: nn.Module, state: Any) -> None:
        """Note what `state_dict()` of a module has returned."""
        if not isinstance(state, Mapping):
            return
        tensors = [each for each in state.values() if type(each) is torch.Tensor]
        followed = tensors[:: max(1, -(-len(tensors) // _LOOKED_AT))]
        self._kept = deque((each for each in self._kept if each.alive()), maxlen=_KEPT)
        site = site_of("state_dict")
        name = _target_at(site.file, site.line) if site is not None else ""
        noted = [(weakref.ref(each), version_of(each)) for each in followed if not each.is_inference()]
        self._kept.append(_Kept(type(module).__name__, noted, len(tensors), self._steps(), name, site))

    def is_as_made(self, given: Any) -> bool:
        """Return whether these are tensors of a state that nothing has written to since it was made."""
        found = [each for each in self._kept if self._is_within(each, given)]
        return bool(found) and not any(_has_moved(each) for each in found)

    def loading(self, module: nn.Module, given: Any, *, are_own: bool) -> None:
        """Note a state that is about to be loaded. `are_own`: its tensors are those of the module itself."""
        for each in self._kept:
            if (are_own or _BEST in each.name.lower()) and self._is_within(each, given) and self._is_outdated(each):
                self._tell(each, "loaded", type(module).__name__)

    def saving(self, saved: Any) -> None:
        """Note what the script saves to a file."""
        for each in self._kept:
            if each.step == self._steps():
                each.is_saved = True
            elif _BEST in each.name.lower() and self._is_outdated(each) and _holds(saved, each):
                self._tell(each, "saved", each.module)

    def overwritten(self, loaded: Any) -> None:
        """Follow the states no longer into whose tensors a checkpoint was loaded: they have its values."""
        self._kept = deque((each for each in self._kept if not _holds(loaded, each)), maxlen=_KEPT)

    def report(self) -> None:
        """Emit the states that are kept as the best ones, and are not."""
        for each in self._kept:
            is_best = _BEST in each.name.lower() and not each.is_saved
            if is_best and self._steps() - each.step >= _STEPS and self._is_outdated(each):
                self._tell(each, "kept", each.module)

    def _is_outdated(self, kept: _Kept) -> bool:
        return self._steps() > kept.step and _has_moved(kept)

    @staticmethod
    def _is_within(kept: _Kept, given: Any) -> bool:
        if not isinstance(given, Mapping):
            return False
        ids = set(map(id, given.values()))
        return any(id(tensor) in ids for tensor, _ in kept.alive())

    def _tell(self, kept: _Kept, how: str, module: str) -> None:
        if how in kept.told:
            return
        kept.told.add(how)
        site = kept.site if how == "kept" else site_of(how)
        at = self._clock.at(), self._steps()
        self._emit(StateAliased(*at, how, module, kept.name, kept.count, kept.step, site))


def _has_moved(kept: _Kept) -> bool:
    return any(version_of(tensor) > version for tensor, version in kept.alive())


def _holds(saved: Any, kept: _Kept) -> bool:
    """Return whether an object to be saved has a tensor of this state."""
    ids = {id(tensor) for tensor, _ in kept.alive()}
    level = [saved]
    for _ in range(_DEPTH):
        level = [item for each in level for item in _items(each)]
        if any(id(item) in ids for item in level):
            return True
    return False


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif type(value) in (list, tuple):
        yield from value


@cache
def _target_at(file: str, line: int) -> str:
    """Return what the statement at a line of a script assigns to; empty if that is nothing, or if a call copies it."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ""
    around = [
        each
        for each in ast.walk(tree)
        if isinstance(each, (ast.Assign, ast.AnnAssign)) and each.lineno <= line <= (each.end_lineno or each.lineno)
        if "state_dict" in ast.unparse(each)
    ]
    if not around:
        return ""
    statement = max(around, key=lambda each: each.lineno)
    target = ast.unparse(statement.targets[0] if isinstance(statement, ast.Assign) else statement.target)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and any(ast.unparse(each) == target for each in call.args):
            function = ast.unparse(call.func).rpartition(".")[2].lower()
            if any(part in function for part in _COPIES):
                return ""
    return target
