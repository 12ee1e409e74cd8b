"""Values that are written once and that all ranks of a job read, in the store through which the ranks have found each other.

Calls run on a thread of their own, so that a store which is slow, or whose process is stopped, holds nobody up who does not
wait for it. It uses names that torch does not promise to keep: `distributed_c10d._get_default_store`. Without them there is no
such value.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from torch import distributed

from gradtui.system.own_thread import OwnThread

_PREFIX = "gradtui"
PIECE_S = 0.2
"""Seconds of one wait for an answer. Waits are counted: a process that is stopped spends only the one that it is in."""
PIECES = 300
"""Waits after which a rank that needs the answer goes on without: 60 seconds, besides those in which it is stopped."""
_SILENT = "the store of the process group does not answer"

T = TypeVar("T")


class NoStoreError(Exception):
    """There is no store that all ranks reach, or it does not answer. The message is a clause.

    `is_final`: it is of no use to ask again.
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


class JobStore:
    """The connection of this process to the store of its default process group.

    Answers are futures; they raise `NoStoreError` if the store fails. Calls run one after the other. After a call that fails
    the next one has a new connection, on which no answer to the former can arrive.
    """

    def __init__(self) -> None:
        self.given_up: str | None = None
        """Why this rank takes no part in what the ranks decide any more: it once had to go on without knowing a decision."""
        self._calls: deque[tuple[Future[Any], Callable[[Any], Any]]] = deque()
        self._lock = threading.Lock()
        self._is_running = False
        self._connection: Any = None
        self._is_broken = False
        """A call on the connection has failed."""
        self._store: Callable[[], Any] = lambda: None
        """Returns the store whose clone the connection is."""

    def write_once(self, name: str, value: str) -> Future[str]:
        """Write a value under a name, if no rank has written one, and return the one that is there then.

        `Store.compare_set` writes only if the present value is the expected one, here none. The empty value counts as none.
        """
        return self._ask(lambda store: store.compare_set(f"{_PREFIX}/{name}", "", value).decode())

    def count(self, name: str, more: int) -> Future[int]:
        """Add `more` to the number of this name, which begins with 0, and return the sum. A call that fails may have added."""
        return self._ask(lambda store: int(store.add(f"{_PREFIX}/{name}", more)))

    def _ask(self, call: Callable[[Any], T]) -> Future[T]:
        asked: Future[T] = Future()
        if self.given_up is not None:
            asked.set_exception(NoStoreError(self.given_up, is_final=True))
            return asked
        with self._lock:
            self._calls.append((asked, call))
            begins, self._is_running = not self._is_running, True
        if begins:
            try:
                OwnThread(self._run, "gradtui-store").start()
            except RuntimeError as error:
                self._is_running = False
                asked.set_exception(NoStoreError(f"{_SILENT} ({error})"))
        return asked

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._is_running = False
                    return
                asked, call = self._calls.popleft()
            if not asked.set_running_or_notify_cancel():
                continue
            try:
                asked.set_result(call(self._connected()))
            except NoStoreError as error:
                asked.set_exception(error)
            except Exception as error:  # noqa: BLE001 - it depends on the kind of store: RuntimeError, DistStoreError, …
                self._is_broken = True
                asked.set_exception(NoStoreError(f"{_SILENT} ({type(error).__name__})"))

    def _connected(self) -> Any:
        """Return a connection of gradtui's own. What is open is still asked when the script has destroyed its group."""
        has_group = distributed.is_available() and distributed.is_initialized()
        if not has_group and self._connection is None:
            raise NoStoreError("the script has initialised no process group", is_final=True)
        try:
            store: Any = distributed.distributed_c10d._get_default_store() if has_group else None  # noqa: SLF001
            is_other = store is not None and store is not self._store()
            if is_other or self._is_broken:
                self._connection = (self._connection if store is None else store).clone()
                self._store = weakref.ref(store) if store is not None else self._store
                self._is_broken = False
        except (AttributeError, NotImplementedError) as error:
            # Without a private name or a clone there is no such value.
            reason = f"the process group has no store that gradtui can use ({type(error).__name__})"
            raise NoStoreError(reason, is_final=True) from None
        return self._connection


job_store = JobStore()
"""That of this process."""


def wait_a_piece(asked: Future[Any]) -> None:
    """Wait `PIECE_S` seconds for an answer. If the call has failed, wait as long: what fails at once is asked again then."""
    wait([asked], PIECE_S)
    if asked.done() and asked.exception() is not None:
        threading.Event().wait(PIECE_S)


def answer_to(ask: Callable[[], Future[T]], wait_for: Callable[[Future[Any]], None] = wait_a_piece) -> T:
    """Wait for an answer of the store, and ask again when a call fails. `PIECES` waits at most.

    Raises:
        NoStoreError: there is no store, or it does not answer in this time.
    """
    asked, failed = ask(), NoStoreError(_SILENT)
    for _ in range(PIECES):
        wait_for(asked)
        if not asked.done():
            continue
        try:
            return asked.result()
        except NoStoreError as error:
            if error.is_final:
                raise
            failed, asked = error, ask()
    asked.cancel()
    raise failed
