"""Catch and report gradtui's own errors, part by part, so that none of them reaches the script."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

from gradtui.system.signal_handlers import raised_by_handler

MAX_FAILURES = 3
"""A part that failed this often is switched off for the rest of the run."""


class Failures:
    """Counts the failures of each part. `report` receives the part, the error, and whether the part is switched off now."""

    def __init__(self, report: Callable[[str, str, bool], None]) -> None:
        self.report = report
        self.guarded: Callable[[str], Guarded] = functools.cache(functools.partial(Guarded, self))
        """Returns what isolates the failures of a part: `with guarded("gradient norms"):`."""
        self.off: set[str] = set()
        """The parts that are switched off."""
        self._counts: dict[str, int] = {}

    def catch(self, part: str, error: Exception) -> bool:
        """Report an error of gradtui, which must not reach the script. False if a signal handler of the script raised it."""
        # Nothing may leave this method, not even an error raised while reporting, as happens close to the recursion limit.
        is_ours = True
        with contextlib.suppress(Exception):
            is_ours = not raised_by_handler(error)
            if is_ours and part not in self.off:
                self._count(part, error)
        return is_ours

    def _count(self, part: str, error: Exception) -> None:
        count = self._counts[part] = self._counts.get(part, 0) + 1
        if count >= MAX_FAILURES:
            self.off.add(part)
        self.report(part, f"{type(error).__name__}: {error}", count >= MAX_FAILURES)


class Guarded:
    """Isolates the failures of a part within a callback of `HookSet.run`: an error of gradtui only ends the `with` block.

    It keeps nothing of a block, so blocks of one part may contain each other. The block of a part that is switched off is
    still entered, and its errors are no longer reported. Before much work, ask `HookSet.is_off`.
    """

    __slots__ = ("_failures", "_part")

    def __init__(self, failures: Failures, part: str) -> None:
        self._failures, self._part = failures, part

    def __enter__(self) -> None:
        """Begin a block."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """End a block. Catches gradtui's own errors, and nothing that is meant for the script."""
        return isinstance(error, Exception) and self._failures.catch(self._part, error)
