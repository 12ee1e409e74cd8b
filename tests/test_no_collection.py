from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gradtui.no_collection import no_collection


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    before = gc.isenabled()
    yield
    (gc.enable if before else gc.disable)()


def interrupted() -> None:
    with no_collection():
        assert not gc.isenabled()
        raise KeyboardInterrupt


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_afterwards_as_it_was_whatever_happens(was_on: bool) -> None:
    (gc.enable if was_on else gc.disable)()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert gc.isenabled() is was_on


def test_a_ctrl_c_right_after_it_has_begun_does_not_leave_the_collector_off(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.enable()
    disable = gc.disable

    def disabled_and_interrupted() -> None:
        disable()
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, "disable", disabled_and_interrupted)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert gc.isenabled()
