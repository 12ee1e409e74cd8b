from __future__ import annotations

import gc
import os
import sys
import threading
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


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("was_on", [True, False])
def test_a_child_forked_by_another_thread_meanwhile_collects_as_without_gradtui(was_on: bool) -> None:
    (gc.enable if was_on else gc.disable)()
    collects: list[bool] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(gc.isenabled())
        collects.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1)

    with no_collection():
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert collects == [was_on]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_child_forked_within_it_collects_after_it() -> None:
    gc.enable()
    with no_collection():
        child = os.fork()
        within = gc.isenabled()
    if child == 0:
        os._exit(2 * within + gc.isenabled())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
