"""Copies to the host that arrive when a test says so, without a device."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from gradtui.probe.torch_private.host_copy import HostCopy


class LateCopy(HostCopy):
    """A copy to the host that arrives when the test says so, as one from a busy device does.

    A test that makes any puts a list of its own in the place of `waiting`.
    """

    waiting: ClassVar[list[LateCopy]] = []
    has_arrived = False

    def __init__(self, values: torch.Tensor) -> None:
        super().__init__(values.clone())
        self.waiting.append(self)

    @property
    def is_there(self) -> bool:
        return self.has_arrived

    @property
    def value(self) -> float:
        return float(self.values()[0])

    def wait(self) -> None:
        self.has_arrived = True
        self.arrive()

    @classmethod
    def arrive(cls) -> None:
        """All copies that are under way have arrived."""
        for copy in cls.waiting:
            copy.has_arrived = True
        cls.waiting.clear()


def unfinished_copies(monkeypatch: pytest.MonkeyPatch, owner: Any) -> list[HostCopy]:
    """Return the list of the copies that a module makes from now on, whose `_done` says that they have not arrived."""
    copies: list[HostCopy] = []

    class Unfinished(HostCopy):
        def __init__(self, values: torch.Tensor) -> None:
            super().__init__(values.clone())
            self._done = type("Event", (), {"query": lambda self: False, "synchronize": lambda self: None})()
            copies.append(self)

    monkeypatch.setattr(owner, "HostCopy", Unfinished)
    return copies
