"""Our wrappers and hooks on torch: put on together, taken off together, and never allowed to hurt the script.

Everything of ours that torch calls goes through `HookSet.run`, which times it, catches what it raises, reports it once,
and switches the failing part off after repeated failures. Exceptions that are meant for the script (the end of a run
after N steps, Ctrl+C) are not `Exception`s and pass.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Protocol

MOST_FAILURES = 3
"""A part that failed this often is switched off for the rest of the run."""


class Removable(Protocol):
    """A handle as torch returns it for a registered hook."""

    def remove(self) -> None:
        """Take the hook off."""


class HookSet:
    """The patches and handles of one probe, and the time spent in them."""

    def __init__(self, report: Callable[[str, str, bool], None]) -> None:
        self.active = True
        """False once removed: wrappers that somebody else has wrapped in turn then pass straight through."""
        self.own_ns = 0
        """Time spent in our own callbacks so far, nanoseconds."""
        self._report = report
        self._failures: dict[str, int] = {}
        self._patches: list[tuple[Any, str, Any, Any, bool]] = []
        self._handles: list[Removable] = []

    def run(self, part: str, callback: Callable[..., None], *arguments: Any) -> None:
        """Call `callback(*arguments)` for the part of this name; whatever it raises stays here."""
        if self._failures.get(part, 0) >= MOST_FAILURES:
            return
        began = perf_counter_ns()
        try:
            callback(*arguments)
        except Exception as error:  # noqa: BLE001 - no error of ours may reach the script
            self._failed(part, error)
        finally:
            self.own_ns += perf_counter_ns() - began

    def _failed(self, part: str, error: Exception) -> None:
        count = self._failures[part] = self._failures.get(part, 0) + 1
        if count == 1 or count == MOST_FAILURES:
            self._report(part, f"{type(error).__name__}: {error}", count >= MOST_FAILURES)

    def patch(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Replace `owner.name` by `wrap(original)` until `remove`."""
        inherited = name not in vars(owner)
        original = getattr(owner, name)
        replacement = wrap(original)
        setattr(owner, name, replacement)
        self._patches.append((owner, name, original, replacement, inherited))

    def keep(self, handle: Removable) -> None:
        """Take over a hook handle, to be removed with the rest."""
        self._handles.append(handle)

    def remove(self) -> None:
        """Take everything off. A name that somebody wrapped after us keeps their wrapper, and ours passes through."""
        self.active = False
        while self._handles:
            self._handles.pop().remove()
        while self._patches:
            owner, name, original, replacement, inherited = self._patches.pop()
            if vars(owner).get(name) is not replacement:
                continue
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
