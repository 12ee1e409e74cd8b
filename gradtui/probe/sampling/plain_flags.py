"""Find attributes such as `requires_grad` of modules, and misspelt ones of parameters, which neither freeze nor unfreeze.

torch stores a flag that is assigned to a module like any other attribute, and reads it nowhere. A class may have a flag of this
name for itself: a name that its code reads is not reported. Runs on the training thread, in sampled steps.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from itertools import pairwise
from types import CodeType

from torch import nn

from gradtui.probe.model import ModuleTree
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import FlagsFound, PlainFlag

_MEANT, _ALIKE = "requiresgrad", 0.8
"""The name that misspelt ones resemble, and how much, as `SequenceMatcher.ratio`."""
_OF_KERAS = "trainable"
_MAX = 64
_FIRST, _EVERY = 4, 4
"""The first sampled steps of a listing, in each of which flags are looked for, and the interval from then on."""


class PlainFlags:
    """Reports the flags that the listed modules and parameters have now."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock = context.emit, context.clock
        self._others: set[str] = set()
        """Names of attributes that are no such flags."""
        self._reported: tuple[PlainFlag, ...] = ()
        self._listing = self._samples = 0
        """The listing of the newest sampled step, and how many sampled steps it has had."""

    def on_step_post(self, tree: ModuleTree, step: int) -> None:
        """Look for flags after some of the sampled steps."""
        is_new = tree.listing != self._listing
        self._listing, self._samples = tree.listing, 1 if is_new else self._samples + 1
        if self._samples > _FIRST and self._samples % _EVERY:
            return
        found = tuple(self._flags(tree))[:_MAX]
        if found != self._reported or (found and is_new):
            self._reported = found
            self._emit(FlagsFound(self._clock.at(), step, found, listing=tree.listing))

    def _flags(self, tree: ModuleTree) -> Iterator[PlainFlag]:
        others = self._others
        for index, module in tree.live_modules():
            if not others.issuperset(attributes := vars(module)):
                for name, value in self._among(attributes):
                    uses = _uses(type(module), name)
                    may_count = name != _OF_KERAS or type(module).__module__.startswith("torch.")
                    if "read" not in uses and may_count:
                        yield PlainFlag(name, value, index, -1, is_set_by_class="written" in uses)
        for index, parameter in tree.live_parameters():
            if type(parameter) is nn.Parameter and not others.issuperset(attributes := vars(parameter)):
                for name, value in self._among(attributes):
                    yield PlainFlag(name, value, -1, index)

    def _among(self, attributes: Mapping[str, object]) -> list[tuple[str, bool]]:
        alike = [name for name in attributes.keys() - self._others if _is_alike(name)]
        self._others |= attributes.keys() - {*alike}
        return [(name, value) for name in alike if isinstance(value := attributes.get(name), bool)]


def _is_alike(name: str) -> bool:
    plain = name.replace("_", "").lower()
    return name == _OF_KERAS or SequenceMatcher(None, plain, _MEANT).ratio() >= _ALIKE


def _uses(kind: type, name: str) -> set[str]:
    """Return whether the code of a class, or of one that it inherits from, has `read` or `written` this attribute of `self`."""
    found: set[str] = set()
    for each in kind.__mro__:
        for function in vars(each).values() if not each.__module__.startswith("torch.") else ():
            code = getattr(function, "__code__", None)
            if isinstance(code, CodeType) and code.co_argcount:
                found |= _uses_in(code, name)
    return found


def _uses_in(code: CodeType, name: str) -> set[str]:
    if name in code.co_consts:  # as `getattr(self, "requires_grad")` has it
        return {"read"}
    found: set[str] = set()
    for before, each in pairwise(dis.get_instructions(code) if name in code.co_names else ()):
        # One instruction may load two variables.
        holder = before.argval[-1] if isinstance(before.argval, tuple) and before.argval else before.argval
        if each.argval == name and holder == code.co_varnames[0]:
            found |= {"read"} if each.opname.startswith("LOAD") else {"written"}
    return found
