"""What only Linux has, taken away: gradtui goes on with less (docs/reference/platforms.md).

`tests/probe/memory/test_memory_breakdown.py` has the same for `mallinfo2`.
"""

from __future__ import annotations

import builtins
import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gradtui.command_line.doctor import devices, machine
from gradtui.probe.samplers.host_load import HostLoadReader, cores
from gradtui.probe.torch_private import graph_depth
from gradtui.remote.job.processes import is_running
from gradtui.runner import script_input, supervisor, terminal, training_run
from gradtui.system.own_memory import OwnMemory
from gradtui.tui.charts import plot_server


@pytest.fixture
def no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file below `/proc` and `/sys`, but for the one from which psutil has the memory of Linux."""

    def opened(file: Any, *arguments: Any, **options: Any) -> Any:
        if str(file).startswith(("/proc/", "/sys/")) and file != "/proc/meminfo":
            raise FileNotFoundError(2, "No such file or directory", file)
        return real(file, *arguments, **options)

    real = builtins.open
    monkeypatch.setattr(builtins, "open", opened)


@pytest.fixture
def no_c_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A C library without the functions of glibc."""
    for name in ("CDLL", "PyDLL"):
        monkeypatch.setattr(ctypes, name, lambda _: SimpleNamespace())


def test_supervisor_does_not_learn_who_sent_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then Ctrl+C, which reaches the whole group, is left to the training process, and other signals are passed on."""
    came = iter([signal.SIGINT, signal.SIGTSTP, signal.SIGTERM])
    monkeypatch.delattr(signal, "sigwaitinfo", raising=False)
    monkeypatch.setattr(signal, "sigwait", lambda _: next(came))
    monkeypatch.setattr(supervisor, "sys", SimpleNamespace(platform="darwin"))
    assert supervisor._next_signal() == signal.SIGTERM


@pytest.mark.usefixtures("no_proc")
def test_process_that_has_ended_is_known_without_proc() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_running(os.getpid())
    assert not is_running(ended.pid)


def test_load_of_host_is_known_but_for_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    assert cores(tmp_path) == 10
    reader = HostLoadReader(tmp_path)
    assert reader.read() is None
    load = reader.read()
    assert (load.cores, load.swapped_in, load.swapped, load.held_up) == (10, 0.0, 0, 0.0)


def test_child_processes_are_looked_for_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> list[str]:
        raise FileNotFoundError

    monkeypatch.setattr(os, "listdir", missing)
    assert training_run._may_have_children()


@pytest.mark.usefixtures("no_c_functions")
def test_stack_of_thread_is_taken_as_small() -> None:
    """A mebibyte, of which an operation takes 800 bytes at most."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(graph_depth.deepest()))
    thread.start()
    thread.join()
    assert found == [(1 << 20) // 800]


@pytest.mark.usefixtures("no_c_functions")
def test_memory_of_viewer_is_not_taken_off() -> None:
    memory = OwnMemory()
    memory.update()
    assert memory.grown == 0
    assert memory._is_off


@pytest.mark.usefixtures("no_c_functions")
def test_a_line_editor_that_is_not_gnu_readline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "readline", ModuleType("readline"))
    script_input._measure_terminal()


@pytest.mark.usefixtures("no_c_functions")
def test_sighup_keeps_action_without_c_library() -> None:
    action = terminal.SighupAction()
    action.ignore()
    action.restore()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


def test_unpollable_terminal_is_gone_with_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS polls no terminals, and says so by POLLNVAL. A SIGHUP of a terminal that is gone must not end the training."""
    poll = SimpleNamespace(register=lambda *_: None, poll=lambda _: [(0, select.POLLNVAL)])
    ours, theirs = os.openpty()
    monkeypatch.setattr(select, "poll", lambda: poll)
    assert not terminal.is_gone(theirs)
    os.close(ours)
    assert terminal.is_gone(theirs)
    os.close(theirs)


@pytest.fixture
def _no_new_session(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("setsid", "nice"):
        monkeypatch.setattr(os, name, lambda *_: None)
    for name in ("signal", "pthread_sigmask"):
        monkeypatch.setattr(signal, name, lambda *_: None)
    return


@pytest.mark.usefixtures("_no_new_session")
def test_plot_server_runs_without_limit_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS refuses RLIMIT_AS."""

    def refused(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refused)
    plot_server._restrain()


@pytest.mark.usefixtures("no_proc")
def test_doctor_describes_a_machine_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "readlink", lambda _: (_ for _ in ()).throw(FileNotFoundError()))
    facts = machine.system_part().facts
    assert (facts["usable_cpus"], facts["memory_limit"]) == (os.cpu_count(), None)
    assert devices._sees_own_process()
