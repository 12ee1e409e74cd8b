"""What all tests of the probe have in common."""

from __future__ import annotations

import pytest

from gradtui.probe.model import model_registry


@pytest.fixture(autouse=True)
def _searches_may_take_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for models is never put off because this machine is slow or busy; the tests of that budget use it up first."""
    monkeypatch.setattr(model_registry, "_SEARCH_NS", 10**13)
