"""Values that are written once and that all ranks of a job read, in the store through which the ranks have found each other.

It uses names that torch does not promise to keep: `distributed_c10d._get_default_store`. Without them there is no such value.
"""

from __future__ import annotations

import weakref
from datetime import timedelta
from typing import Any

from torch import distributed

_PREFIX = "gradtui"
_ANSWER_S = 5.0
"""Seconds that the store has to answer. The script's own connection to it keeps its timeout."""
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
    store = _own_connection()
    try:
        found: bytes = store.compare_set(f"{_PREFIX}/{name}", "", value)
        return found.decode()
    except Exception as error:  # noqa: BLE001 - it depends on the kind of store: RuntimeError, DistStoreError, …
        raise NoStoreError(f"the store of the process group does not answer ({type(error).__name__})") from None


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
