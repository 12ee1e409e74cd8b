"""Notice the first use of what the probe watches. Any thread of the script; until then the probe is not imported.

The probe is some three hundred modules. A script imports torch first, then reads its arguments and data, and makes a model
later: it reaches these lines sooner. What no probe is needed for, such as samples of memory, does not wait (`Readings`).

Each function here is replaced by one that begins the watch and then calls torch's, which the probe may wrap. Those that a
script may have imported by name stay replaced until `end`, so that it finds the same function under both names. What the script
has put in place of a replacement stays there, and calls it.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from gradtui.dataclass import dataclass
from gradtui.probe.torch_private.dynamo_frames import leave_all_to_python, leave_frame_to_python
from gradtui.probe.torch_private.private_names import backward_owner, no_torch_dispatch, no_torch_function
from gradtui.system.own_frames import hide, strip_own_frames

_CLASSES = ((nn.Module, "__init__"), (nn.Module, "__call__"), (nn.Module, "__setstate__"))
"""Of each owner, what is called first: the rest of a class needs an object of it."""
_BY_NAME = (
    ((torch, torch.serialization), ("save", "load")),
    ((nn.utils, nn.utils.clip_grad), ("clip_grad_norm_", "clip_grads_with_norm_", "clip_grad_value_")),
)
"""Functions under both names by which a script may import them. Some versions of torch lack one."""


@dataclass
class _Place:
    """Where a function is replaced."""

    owner: Any
    name: str
    original: Any
    replacement: Any = None
    behind: Any = None
    """What the replacement calls."""
    stays: bool = False
    """Until `end`, since a script may have imported the function by name."""


class FirstUse:
    """Calls `then` once, before the first use. `then` must raise no `Exception`. It wraps functions within `wrapping`."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._owner = os.getpid()
        # Reentrant: what `then` calls may use torch as well.
        self._turn = threading.RLock()
        self.is_over = self._has_wrapped = False
        self._places: list[_Place] = []

    def watch_for(self) -> None:
        """Replace the functions."""
        scaler = torch.amp.GradScaler
        made = ((kind, "__init__") for kind in (Optimizer, DataLoader, scaler))
        for owner, name in (*_CLASSES, *made, backward_owner()):
            self._replace(owner, name, stays=False)
        for owners, names in _BY_NAME:
            for owner in owners:
                for name in names:
                    if hasattr(owner, name):
                        self._replace(owner, name, stays=True)
        _waiting[:] = [self]

    # The first use may lie within a region that dynamo compiles, behind a graph break.
    @leave_all_to_python
    def begin(self) -> None:
        """Begin now. Does nothing in a process that the script forked, and after the first time."""
        if self.is_over or os.getpid() != self._owner:
            return
        with self._turn:
            if self.is_over:
                return
            self.is_over = True
            _waiting.clear()
            try:
                # The script may make its first model within a mode: a default device is one, too.
                with no_torch_function(), no_torch_dispatch():
                    self._then()
            except BaseException:
                # A signal handler of the script has raised it: the next use is the first one.
                self.is_over = self._has_wrapped
                _waiting[:] = [] if self.is_over else [self]
                raise

    @contextmanager
    def wrapping(self) -> Iterator[None]:
        """Put torch's own functions in place within this context; afterwards the replacements call what is there then.

        It is brief: another thread does not meet what the script has put there.
        """
        places, self._has_wrapped = self._places, True
        found = [getattr(place.owner, place.name) for place in places]
        try:
            for place in places:
                setattr(place.owner, place.name, place.original)
            yield
        finally:
            for place, before in zip(places, found):
                place.behind = getattr(place.owner, place.name)
                if place.stays or before is not place.replacement:
                    setattr(place.owner, place.name, before)

    def end(self) -> None:
        """Put everything back that is still replaced."""
        self.is_over = True
        _waiting.clear()
        # What other code has wrapped since stays, and calls what stands behind.
        for place in self._places:
            if vars(place.owner).get(place.name) is place.replacement:
                setattr(place.owner, place.name, place.behind)

    def _replace(self, owner: Any, name: str, *, stays: bool) -> None:
        original = getattr(owner, name)
        # One replacement for both names of a function: the script may compare them.
        known = next((each for each in self._places if each.original is original), None)
        place = _Place(owner, name, original, behind=original, stays=stays)
        place.replacement = known.replacement if known is not None else _beginning(self, place)
        setattr(owner, name, place.replacement)
        self._places.append(place)


_waiting: list[FirstUse] = []
"""What waits in this process: one at most."""


def begin() -> None:
    """Begin to watch this process now, if that waits for the first use of torch."""
    for each in tuple(_waiting):
        each.begin()


def _beginning(use: FirstUse, place: _Place) -> Callable[..., Any]:
    original, is_dynamo = place.original, torch.compiler.is_dynamo_compiling

    def begun() -> Callable[..., Any]:
        if not use.is_over:
            use.begin()
        return place.behind  # type: ignore[no-any-return]  # it is what torch has there

    leave_frame_to_python(begun)

    # Where dynamo traces a call of it, it wraps what the closure has: functions only.
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        # Nothing may be read before this test: while dynamo traces, every value read becomes a guard.
        if is_dynamo():
            return original(*args, **kwargs)
        try:
            return begun()(*args, **kwargs)
        except BaseException as error:
            strip_own_frames(error)
            raise

    return leave_frame_to_python(hide(call))
