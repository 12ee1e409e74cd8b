"""Signals for the processes that descend from a launcher."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import psutil
import pytest

from gradtui.runner.descendants import Descendants

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")

PARENT = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, '-Sc', {child!r}], stdout=subprocess.PIPE, text=True, {options})
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""
WAITING = "import signal; print(flush=True); signal.pause()"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, lambda *_: None)\nwhile True:\n    {WAITING}"


@contextmanager
def parent_and_child(child: str, options: str = "") -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """A process and its child."""
    source = PARENT.format(child=child, options=options)
    parent = subprocess.Popen([sys.executable, "-Sc", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    grandchild = psutil.Process(int(parent.stdout.readline()))
    try:
        yield parent, grandchild
    finally:
        for each in (parent, grandchild):
            if each.poll() is None if isinstance(each, subprocess.Popen) else each.is_running():
                each.kill()
        parent.communicate()


def has_ended(process: psutil.Process) -> bool:
    """A process that nobody has waited for is a zombie."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def ends_within(seconds: float, process: psutil.Process) -> bool:
    """Wait until a process has ended; psutil waits for a zombie until its parent does."""
    until = monotonic() + seconds
    while not has_ended(process) and monotonic() < until:
        threading.Event().wait(0.01)
    return has_ended(process)


def test_signal_reaches_group_as_from_terminal() -> None:
    with parent_and_child(WAITING) as (parent, child):
        Descendants(parent.pid).signal_group(signal.SIGINT)
        assert ends_within(10, child)
        assert parent.poll() is None


def test_own_session_is_left_to_launcher() -> None:
    with parent_and_child(WAITING, "start_new_session=True") as (parent, child):
        found = Descendants(parent.pid)
        found.signal_group(signal.SIGTERM)
        assert parent.poll() is None
        assert not has_ended(child)
        # … but does not outlive a launcher that was killed.
        parent.kill()
        parent.wait()
        found.kill(0.0)
        assert ends_within(10, child)


def test_processes_get_time_before_kill() -> None:
    with parent_and_child(STUBBORN) as (parent, child):
        found = Descendants(parent.pid)
        found.signal_group(signal.SIGTERM)
        parent.kill()
        parent.wait()
        found.kill(0.05)
        assert ends_within(10, child)
    with parent_and_child(WAITING) as (parent, child):
        found = Descendants(parent.pid)
        found.signal_group(signal.SIGTERM)
        began = monotonic()
        found.kill(60.0)
        assert has_ended(child)
        # As soon as they have ended, also if their parent has not waited for them.
        assert monotonic() - began < 30.0


def test_a_process_that_is_gone_has_none() -> None:
    gone = subprocess.Popen([sys.executable, "-Sc", ""])
    gone.wait()
    found = Descendants(gone.pid)
    found.signal_group(signal.SIGKILL)
    found.kill(60.0)
