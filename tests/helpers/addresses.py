"""Objects at the address of a freed one, in tests."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

T = TypeVar("T")
At = Callable[[int, T], T]


@contextmanager
def addresses() -> Iterator[Callable[[int, T], T]]:
    """A function that gives an object this address, as Python does with that of a freed object whenever it likes.

    The freed object must be gone. Only `id()` knows, until the context is left.
    """
    own = builtins.id
    moved: list[tuple[object, int]] = []

    def given(one: object) -> int:
        return next((address for other, address in moved if other is one), own(one))

    def give(address: int, one: T) -> T:
        moved.append((one, address))
        return one

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "id", given)
        yield give
