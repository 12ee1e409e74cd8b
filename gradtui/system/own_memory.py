"""How much memory the viewer's thread has taken from glibc's malloc, which the script's figure must not contain.

glibc gives each thread an arena of its own, from which its blocks come, and `malloc_info` lists the arenas. Curves, texts and
the caches of the screen grow there: by a megabyte in some thousand steps. What the script's threads allocate for gradtui is
small, but for the batches that a try keeps, whose bytes it sets. Once other threads may share the viewer's arena, the amount
that is taken off no longer changes. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from time import monotonic

_PERIOD_S = 1.0
_BLOCK, _BLOCKS = 96 << 10, 8
"""Bytes and number of the blocks by which a thread finds its arena. Larger ones would be mapped outside of arenas."""
_ATTEMPTS = 5
_ARENAS_PER_CORE = 8
"""With more arenas than these, threads share them."""
_ARENA = re.compile(
    rb'<heap nr="\d+">.*?<total type="fast" count="\d+" size="(\d+)"/>\s*<total type="rest" count="\d+" size="(\d+)"/>\s*'
    rb'<system type="current" size="(\d+)"/>',
    re.DOTALL,
)
_UNKNOWN = (OSError, AttributeError, TypeError, ValueError, IndexError)
"""What is raised where there is no glibc, or another one."""


class OwnMemory:
    """The growth of the arenas of the viewer's threads. The viewer calls `update`, its other threads `enrol`; any thread reads
    `grown`."""

    def __init__(self) -> None:
        self.grown = 0
        """Bytes that these threads have allocated, and not freed, since each of them was enrolled."""
        self.kept = 0
        """Bytes that gradtui keeps of what the script has dropped. The training thread sets it."""
        self._due = 0.0
        self._arenas: dict[int, int] = {}
        """By index of an arena, counted from the oldest: its bytes in use when its thread was enrolled. New arenas come before
        older ones in glibc's list, behind the main one."""
        self._threads: dict[int, int] = {}
        """By thread: how often its arena may still be looked for; 0 once that is over."""
        self._malloc: _Malloc | None = None
        self._is_off = "MALLOC_ARENA_MAX" in os.environ or "arena_max" in os.environ.get("GLIBC_TUNABLES", "")

    def update(self) -> None:
        """Read the arenas, at most once a second. Call it where the viewer holds little that is about to be freed."""
        now = monotonic()
        if now < self._due:
            return
        self._due = now + _PERIOD_S
        self.enrol()
        self.refresh()

    def refresh(self) -> None:
        """Read the arenas now, on any thread: a quarter of a millisecond."""
        if self._is_off or self._malloc is None or not self._arenas:
            return
        try:
            in_use = self._malloc.in_use()
            self._is_off = len(in_use) >= _ARENAS_PER_CORE * len(os.sched_getaffinity(0))
            if not self._is_off:
                self.grown = sum(in_use[index] - before for index, before in list(self._arenas.items()))
        except _UNKNOWN:
            self._is_off = True

    def enrol(self) -> None:
        """Count the arena of the calling thread from now on, if it has one of its own. Cheap once that is known."""
        thread = threading.get_ident()
        left = self._threads.get(thread, _ATTEMPTS)
        if self._is_off or not left:
            return
        try:
            self._malloc = self._malloc or _Malloc()
            found = self._malloc.arena_of_this_thread()
        except _UNKNOWN:
            self._is_off = True
            return
        self._threads[thread] = left - 1 if found is None else 0
        if found is not None:
            self._arenas.setdefault(*found)


class _Malloc:
    """The calls of glibc. `PyDLL` keeps the GIL, so that nothing of Python allocates meanwhile."""

    def __init__(self) -> None:
        library = ctypes.PyDLL(None)
        self._info, self._open, self._close = library.malloc_info, library.open_memstream, library.fclose
        self._take, self._free = library.malloc, library.free
        for function in (self._open, self._take):
            function.restype = ctypes.c_void_p
        self._open.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._info.argtypes = [ctypes.c_int, ctypes.c_void_p]
        self._take.argtypes = [ctypes.c_size_t]
        self._close.argtypes = self._free.argtypes = [ctypes.c_void_p]

    def in_use(self) -> list[int]:
        """Return the bytes in use of each arena, the oldest first and the main one last. Raises OSError."""
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        stream = self._open(ctypes.byref(text), ctypes.byref(size))
        if not stream:
            raise OSError("no memory")
        try:
            failed = self._info(0, stream)
        finally:
            self._close(stream)
        try:
            found = _ARENA.findall(ctypes.string_at(text.value or 0, size.value))
        finally:
            self._free(text)
        if failed or not found:
            raise OSError("malloc_info is not known")
        return [int(current) - int(fast) - int(rest) for fast, rest, current in reversed(found)]

    def arena_of_this_thread(self) -> tuple[int, int] | None:
        """Return the index and the bytes in use of the calling thread's own arena; None if it has none, or it is not sure."""
        before = self.in_use()
        blocks = [self._take(_BLOCK) for _ in range(_BLOCKS)]
        during = self.in_use()
        for block in blocks:
            self._free(block)
        # The last one is the main arena.
        grown = [index for index, bytes_ in enumerate(before[:-1]) if during[index] - bytes_ >= _BLOCK * _BLOCKS]
        return (grown[0], before[grown[0]]) if len(grown) == 1 else None


OWN = OwnMemory()
