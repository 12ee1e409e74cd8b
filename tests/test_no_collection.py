from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
from helpers.programs import run_program

from gradtui.system import no_collection as module
from gradtui.system.no_collection import end_exemption, exempt_what_exists, no_collection


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
def test_collector_is_afterwards_as_it_was_whatever_happens(was_on: bool) -> None:
    (gc.enable if was_on else gc.disable)()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert gc.isenabled() is was_on


def test_ctrl_c_leaves_collector_on(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.enable()
    disable = gc.disable

    def disabled_and_interrupted() -> None:
        disable()
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, "disable", disabled_and_interrupted)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert gc.isenabled()


# In fresh processes: a child of a process of tests collects the garbage of former tests as soon as collection is on, and
# objects whose threads do not exist in the child may end it.
FORKED_BY_ANOTHER_THREAD = """
import gc, os, sys, threading
from gradtui.system import no_collection as module
from gradtui.system.no_collection import end_exemption, exempt_what_exists, no_collection

(gc.enable if sys.argv[1] == "True" else gc.disable)()

def fork():
    child = os.fork()
    if child == 0:
        os._exit(gc.isenabled())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

with no_collection():
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
"""

FORKED_WITHIN = """
import gc, os
from gradtui.system import no_collection as module
from gradtui.system.no_collection import end_exemption, exempt_what_exists, no_collection

with no_collection():
    child = os.fork()
    within = gc.isenabled()
if child == 0:
    os._exit(2 * within + gc.isenabled())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def stdout_of(script: str, *arguments: str) -> str:
    ended = run_program(script, *arguments, warnings="ignore", check=False)
    assert ended.stderr == ""
    return ended.stdout.strip()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize("was_on", [True, False])
def test_child_forked_meanwhile_collects_as_usual(was_on: bool) -> None:
    assert stdout_of(FORKED_BY_ANOTHER_THREAD, str(was_on)) == str(int(was_on))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_child_forked_within_it_collects_after_it() -> None:
    assert stdout_of(FORKED_WITHIN) == "1"


@pytest.mark.parametrize("script_exempts", [False, True])
def test_exemption_ends_with_run_unless_scripts_own(script_exempts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([100, 120 if script_exempts else 90])
    done = []
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: done.append("unfreeze"))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: next(counts))
    monkeypatch.setattr(module, "_exempt", 0)
    exempt_what_exists()
    end_exemption()
    assert done == (["freeze"] if script_exempts else ["freeze", "unfreeze"])
