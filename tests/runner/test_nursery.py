"""Processes that are started elsewhere. Each case in a process of its own, which may fork."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

from terminal_session import ROOT

PROLOGUE = """\
import contextlib, os, signal, time
import psutil
from gradtui.runner.nursery import Nursery
nursery = Nursery.open()
null = os.open(os.devnull, os.O_RDWR)

def started(*command):
    reading, writing = os.pipe()
    child = nursery.start(command, null, writing, null)
    os.close(writing)
    return child, reading

def gone(pid):
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, pid
        time.sleep(0.005)
    return True
"""


def run(program: str) -> str:
    words = [sys.executable, "-W", "error", "-c", PROLOGUE + textwrap.dedent(program)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_process_is_the_child_of_the_nursery_with_the_descriptors_it_was_given() -> None:
    program = """
        child, reading = started("sh", "-c", "echo $PPID; exec sleep 60")
        process = psutil.Process(child.pid)
        parent = os.read(reading, 100)
        print(int(parent) == process.ppid() == nursery.parent, os.getsid(child.pid) == child.pid)
        print([child.pid for child in psutil.Process().children()] == [nursery.parent])
        print(child.poll(), process.is_running())
        child.kill()
        print(not process.is_running(), child.poll() == child.wait(1) == -signal.SIGKILL, os.read(reading, 1))
        nursery.end()
        print(psutil.Process().children())
    """
    assert run(program).splitlines() == ["True True", "True", "None True", "True True b''", "[]"]


def test_what_cannot_be_started_is_an_error_and_the_next_is_started() -> None:
    program = """
        try:
            started("/nonexistent/python")
        except OSError as error:
            print("FileNotFoundError" in str(error))
        child, reading = started("echo", "here")
        print(os.read(reading, 100))
        nursery.end()
        try:
            started("echo")
        except OSError:
            print("gone")
    """
    assert run(program).splitlines() == ["True", "b'here\\n'", "gone"]


def test_it_ends_with_the_last_who_could_ask_and_its_children_with_it() -> None:
    program = """
        child, reading = started("sleep", "60")
        worker = os.fork()
        if worker == 0:
            time.sleep(60)
        nursery._connection.close()
        print(psutil.pid_exists(nursery.parent))
        os.kill(worker, signal.SIGKILL)
        print(gone(nursery.parent), gone(child.pid))
    """
    assert run(program).splitlines() == ["True", "True True"]


def test_it_holds_nothing_of_the_process_that_it_was_forked_from() -> None:
    program = """
        nursery.end()
        reading, writing = os.pipe()
        nursery = Nursery.open()
        nursery.start(["true"], null, null, null)
        os.close(writing)
        print(os.read(reading, 1), os.getsid(nursery.parent) == nursery.parent)
        nursery.end()
    """
    assert run(program) == "b'' True\n"
