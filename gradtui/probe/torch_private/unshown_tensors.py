"""Read what autograd keeps with a torch whose `SavedTensor` shows neither its tensor nor its hooks: versions before 2.10.

A node's `_saved_x` unpacks the content of its `_raw_saved_x`. Where the script has set hooks on saved tensors, as
`torch.utils.checkpoint` does, unpacking runs them, and torch does not show whether a tensor has any. So gradtui notes at which
sequence numbers hooks begin and end, and unpacks nothing that an operation between them keeps. Any thread.
"""

from __future__ import annotations

import functools
import weakref
from _thread import get_ident
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import torch

from gradtui.probe.torch_private.dynamo_frames import leave_all_to_python
from gradtui.system.own_frames import hide

ARE_SHOWN = hasattr(getattr(torch._C._autograd, "SavedTensor", None), "unpack_hook")
"""Whether a `SavedTensor` shows its tensor and its hook. Otherwise hooks must be watched for, from the beginning."""
PUSH, POP = "_push_saved_tensors_default_hooks", "_pop_saved_tensors_default_hooks"
"""The functions of `torch._C._autograd` by which `saved_tensors_hooks` sets its hooks and takes them back."""
_MOST = 4_096
"""Of the places that a thread notes. What operations before them keep is unknown."""


class Unhooked:
    """What a `SavedTensor` without hooks shows from torch 2.10 on."""

    __slots__ = ("data",)
    unpack_hook = None

    def __init__(self, data: torch.Tensor | None) -> None:
        self.data = data


class Hooked:
    """What a `SavedTensor` with hooks shows from torch 2.10 on, without what they have packed."""

    __slots__ = ("unpack_hook",)
    data = None

    def __init__(self, unpack_hook: object) -> None:
        self.unpack_hook = unpack_hook


def _unknown() -> None:
    """Stand for a hook that is not known, or not any more."""


def _no_longer_known() -> object:
    return _unknown


_Hook = Callable[[], object]
"""A weak reference to the hook that unpacks."""


class _Places:
    """The sequence numbers of one thread from which on other hooks are in force than before."""

    def __init__(self, earlier: _Hook | None, now: int, hook: _Hook | None) -> None:
        self.numbers, self.hooks = [-1, now], [earlier, hook]
        self.stack = [hook] if hook is not None else []

    def add(self, number: int) -> None:
        self.numbers.append(number)
        self.hooks.append(self.stack[-1] if self.stack else None)
        if len(self.numbers) > _MOST:
            del self.numbers[1 : _MOST // 2], self.hooks[1 : _MOST // 2]
            self.hooks[0] = _no_longer_known

    def hook_at(self, number: int) -> _Hook | None:
        return self.hooks[bisect_right(self.numbers, number) - 1]


_top: Callable[[bool], Any] | None = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
_are_allowed: Callable[[], bool] | None = getattr(torch._C._autograd, "_saved_tensors_hooks_is_enabled", None)
_forbid: Callable[[str], None] | None = getattr(torch._C._autograd, "_saved_tensors_hooks_disable", None)
_allow: Callable[[], None] | None = getattr(torch._C._autograd, "_saved_tensors_hooks_enable", None)

KNOWS_HOOKS = _top is not None or None not in (_are_allowed, _forbid, _allow)
"""Whether this version of torch has the functions that `hooks_are_in_force` calls."""


def hooks_are_in_force() -> bool:
    """Return whether hooks get what autograd saves on this thread now.

    A torch that does not show them (2.6) does not let hooks be disabled while there are any, which is undone at once.
    """
    if _top is not None:
        return _top(True) is not None
    if _are_allowed is None or _forbid is None or _allow is None or not _are_allowed():
        return False
    try:
        _forbid("")
    except RuntimeError:
        return True
    finally:
        _allow()
    return False


def unpack_hook_in_force() -> object | None:
    """Return the hook that will unpack what autograd saves on this thread now; None without hooks.

    Each checkpointed region has a hook of its own, which is alive as long as its part of the graph.
    """
    if _top is not None:
        hooks = _top(False)
        return hooks[1] if hooks is not None else None
    hook = _Newest.watch.newest_hook() if _Newest.watch is not None else None
    return (hook() or _unknown) if hook is not None else None


class _Watch:
    """Notes the hooks of all threads from now on. What was recorded on this thread before counts as hooked."""

    def __init__(self) -> None:
        self.is_over = False
        """Whether the numbers of a thread have begun anew: another thread has the identity of one that has ended."""
        hook = _no_longer_known if hooks_are_in_force() else None
        self._threads = {get_ident(): _Places(_no_longer_known, _next_number(), hook)}

    def pushed(self, hook: object) -> None:
        number, places = _next_number(), self._threads.get(get_ident())
        if places is None:
            places = self._threads[get_ident()] = _Places(None, number, None)
        try:
            places.stack.append(weakref.ref(hook))
        except TypeError:
            places.stack.append(_no_longer_known)
        self._add(places, number)

    def popped(self) -> None:
        places = self._threads.get(get_ident())
        if places is not None and places.stack:
            places.stack.pop()
            self._add(places, _next_number())

    def _add(self, places: _Places, number: int) -> None:
        self.is_over |= number < places.numbers[-1]
        places.add(number)

    def newest_hook(self) -> _Hook | None:
        """Return the hook that is in force on this thread, None without one."""
        places = self._threads.get(get_ident())
        return places.stack[-1] if places is not None and places.stack else None

    def hook_at(self, number: int, *, of_this_thread: bool) -> _Hook | None:
        """Return the hook of the operation with this number; None if no thread, or not this one, had any in force then."""
        among = tuple(each for key, each in [*self._threads.items()] if not of_this_thread or key == get_ident())
        found = (places.hook_at(number) for places in among)
        return next((hook for hook in found if hook is not None), None)


def _next_number() -> int:
    number: int = torch._C._autograd._get_sequence_nr()
    return number


class _Newest:
    watch: _Watch | None = None


def watch(patch: Callable[[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]], None]) -> None:
    """Note all hooks from now on. `patch(owner, name, wrap)` replaces a function by what `wrap` makes of it."""
    newest = _Newest.watch = _Watch()
    patch(torch._C._autograd, PUSH, lambda push: _noting(push, lambda hooks: newest.pushed(hooks[-1])))
    patch(torch._C._autograd, POP, lambda pop: _noting(pop, lambda _: newest.popped()))


def _noting(original: Callable[..., Any], note: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def noting(*hooks: Any) -> Any:
        result = original(*hooks)
        note(hooks)
        return result

    return leave_all_to_python(hide(noting))


def are_readable() -> bool:
    """Return whether what the graphs keep can be read."""
    return ARE_SHOWN or (_Newest.watch is not None and not _Newest.watch.is_over)


def saved(node: Any, name: str, *, of_this_thread: bool = False) -> Any:
    """Return the node's attribute `name` (`_raw_saved_x`), or what shows the same content where that does not; None if there is
    no such attribute. Each thread numbers its operations by itself: hooks of others count too, but `of_this_thread`."""
    raw = getattr(node, name, None)
    if ARE_SHOWN or raw is None or _Newest.watch is None or _Newest.watch.is_over:
        return raw
    hook = _Newest.watch.hook_at(node._sequence_nr(), of_this_thread=of_this_thread)
    if hook is not None:
        hooked = Hooked(hook() or _unknown)
        return [hooked] * len(raw) if isinstance(raw, (tuple, list)) else hooked
    shown = name.removeprefix("_raw")
    try:
        # A custom Function's node has the name without the underscore.
        value = getattr(node, shown if hasattr(type(node), shown) else shown[1:])
    except (RuntimeError, AttributeError):
        return raw  # freed, or written in place since
    if isinstance(value, (tuple, list)):
        return [Unhooked(each) for each in value]
    return Unhooked(value)
