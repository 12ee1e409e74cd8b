"""Call methods in the processes that the script forks. gradtui does not observe those processes.

Python never forgets a function that was given to `os.register_at_fork`, so this module registers one for the whole process.
It calls the methods whose objects are still alive.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress

_calls: list[weakref.WeakMethod[Callable[[], object]]] = []


def call_in_forked_children(method: Callable[[], object]) -> None:
    """Call this bound method in each process that is forked from now on, for as long as its object lives.

    It does nothing on Windows, which has no fork.
    """
    if sys.platform != "win32":
        _register()
        _calls[:] = [*(call for call in _calls if call() is not None), weakref.WeakMethod(method)]


@functools.cache
def _register() -> None:
    os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    for call in tuple(_calls):
        method = call()
        # Python would print an exception into the script's output.
        with suppress(Exception):
            if method is not None:
                method()
