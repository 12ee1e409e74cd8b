"""Values that are written once and that all ranks of a job read, in the store through which the ranks have found each other.

It uses names that torch does not promise to keep: `distributed_c10d._get_default_store`. Without them there is no such value.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch import distributed

_PREFIX = "gradtui"
_ANSWER_S = 5.0
"""Seconds that the store has to answer. The script's own connection to it keeps its timeout."""
_SILENT = "the store of the process group does not answer"
_clones: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class NoStoreError(Exception):
    """There is no store that all ranks reach, or it does not answer. The message is a clause."""


def write_once(name: str, value: str) -> str:
    """Write a value under a name, if no rank has written one, and return the one that is there.

    `Store.compare_set` writes only if the present value is the expected one, here none, and returns the value that is there
    then: all ranks get the same.

    Raises:
        NoStoreError: there is no store, or it does not answer in some seconds.
    """
    return _ask(lambda: _compare_set(name, value))


def count(name: str, more: int) -> int:
    """Add `more` to the number of this name, which begins with 0, and return the sum.

    Raises:
        NoStoreError: there is no store, or it does not answer in some seconds.
    """
    return int(_ask(lambda: str(_with_store(lambda store: store.add(f"{_PREFIX}/{name}", more)))))


def _ask(call: Callable[[], str]) -> str:
    if _Call.is_stuck:
        raise NoStoreError(_SILENT)
    return _Call(call).result()


def read(name: str) -> str | None:
    """Return the value that a rank has written under a name; None if none has. Raises `NoStoreError` as `write_once` does."""
    if _Call.is_stuck:
        raise NoStoreError(_SILENT)
    return _Call(lambda: _read(name)).result() or None


def _read(name: str) -> str:
    store, key = _own_connection(), f"{_PREFIX}/{name}"
    try:
        # `get` waits for a value that is not there.
        return store.get(key).decode() if store.check([key]) else ""
    except Exception as error:  # noqa: BLE001 - as for `_compare_set`
        raise NoStoreError(f"the store of the process group does not answer ({type(error).__name__})") from None


def _compare_set(name: str, value: str) -> str:
    found: bytes = _with_store(lambda store: store.compare_set(f"{_PREFIX}/{name}", "", value))
    return found.decode()


def _with_store(call: Callable[[Any], Any]) -> Any:
    store = _own_connection()
    try:
        return call(store)
    except Exception as error:  # noqa: BLE001 - it depends on the kind of store: RuntimeError, DistStoreError, …
        raise NoStoreError(f"the store of the process group does not answer ({type(error).__name__})") from None


class _Call:
    """A call on a thread of its own: a server that is stopped holds up a store's calls whatever their timeout is."""

    is_stuck = False
    """A call has not returned in time. There are no more then: the store serves one call at a time."""

    def __init__(self, call: Callable[[], str]) -> None:
        self._call = call
        self._found: str | NoStoreError | None = None
        self._thread = threading.Thread(target=self._run, name="gradtui-store", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._call()
        except NoStoreError as error:
            self._found = error

    def result(self) -> str:
        """Return what the call returns. Raises `NoStoreError`, also if it does not return in time."""
        self._thread.join(_ANSWER_S)
        if self._found is None:
            _Call.is_stuck = True
            raise NoStoreError(_SILENT)
        if isinstance(self._found, NoStoreError):
            raise self._found
        return self._found


def _own_connection() -> Any:
    """Return a connection to the default group's store with a timeout of its own."""
    if not distributed.is_available() or not distributed.is_initialized():
        raise NoStoreError("the script has initialised no process group")
    try:
        store: Any = distributed.distributed_c10d._get_default_store()  # noqa: SLF001
        known = _clones.get(store)
        if known is None:
            known = store.clone()
            known.set_timeout(timedelta(seconds=_ANSWER_S))
            _clones[store] = known
    except Exception as error:  # noqa: BLE001 - without a private name or a clone of it there is no such value
        raise NoStoreError(f"the process group has no store that gradtui can use ({type(error).__name__})") from None
    return known
