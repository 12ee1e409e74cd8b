"""A mapping from objects to values by identity, which holds the objects weakly.

`id()` alone does not identify an object: Python may give the address of a freed object to a new one. Here a new object never
finds the value of a freed one. Any thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
V = TypeVar("V")

_MIN = 16
"""Dead entries are removed when there are twice as many entries as after the last removal, and at least this many."""


class ByIdentity(Generic[T, V]):
    """Maps living objects to values. Never calls `__eq__` or `__hash__` of an object."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[T], V]] = {}
        self._prune_at = _MIN

    def get(self, of: T) -> V | None:
        """Return the value of this object, None if it has none."""
        known = self._known.get(id(of))
        return known[1] if known is not None and known[0]() is of else None

    def set(self, of: T, value: V) -> None:
        """Set the value of this object."""
        self._known[id(of)] = weakref.ref(of), value
        if len(self._known) >= self._prune_at:
            self._known = {key: known for key, known in self._known.items() if known[0]() is not None}
            self._prune_at = max(_MIN, 2 * len(self._known))

    def discard(self, of: T) -> None:
        """Remove this object and its value."""
        if self.get(of) is not None:
            del self._known[id(of)]

    def living(self) -> Iterator[T]:
        """Yield every living object that has a value."""
        return (each for reference, _ in list(self._known.values()) if (each := reference()) is not None)
