"""What the training process says about the terminal, as the supervisor hears it."""

from __future__ import annotations

import gc
import os
import pty
import termios
import tty
from collections.abc import Iterator

import pytest

from gradtui.runner.supervisor_connection import (
    SupervisorConnection,
    TerminalState,
    TrainingProcessConnection,
    socket_pair,
)
from gradtui.runner.terminal import line_settings
from gradtui.system.descriptors import LOWEST_OWN


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = socket_pair()
    yield reading, writing
    for end in (reading, writing):
        try:
            os.close(end)
        except OSError:
            continue


def test_last_word_counts(pipe: tuple[int, int]) -> None:
    connection, reader = SupervisorConnection(pipe[1]), TrainingProcessConnection(pipe[0])
    assert reader.read() == TerminalState(screen_up=False, log=None)
    connection.report(log="/tmp/a log \udcff.txt")
    connection.report(screen_up=True)
    assert reader.read() == TerminalState(screen_up=True, log="/tmp/a log \udcff.txt")
    connection.report(screen_up=False)
    connection.report(screen_up=True)
    connection.report(screen_up=False)
    connection.report(log=None)
    connection.report(stop_group=True)
    assert reader.read() == TerminalState(screen_up=False, log=None, stop_group=True)
    assert reader.read() == TerminalState(screen_up=False, log=None, stop_group=True)


def test_descriptors_are_high_and_not_inherited(pipe: tuple[int, int]) -> None:
    for end in pipe:
        assert end >= LOWEST_OWN
        assert not os.get_inheritable(end)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the test runner may have threads
def test_a_process_forked_by_the_script_says_nothing(pipe: tuple[int, int]) -> None:
    connection, reader = SupervisorConnection(pipe[1]), TrainingProcessConnection(pipe[0])
    child = os.fork()
    if child == 0:
        gc.disable()  # the garbage of other tests may need threads that this process does not have
        try:
            connection.report(screen_up=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert reader.read().screen_up is False


def test_supervisor_that_is_there_or_gone(pipe: tuple[int, int]) -> None:
    assert SupervisorConnection(pipe[1], os.getppid()).supervisor_is_gone() is False
    assert SupervisorConnection(pipe[1], 1 << 30).supervisor_is_gone() is True
    assert SupervisorConnection().supervisor_is_gone() is False


def test_no_error_where_nobody_listens(pipe: tuple[int, int]) -> None:
    SupervisorConnection().report(screen_up=True)
    os.close(pipe[0])
    SupervisorConnection(pipe[1]).report(screen_up=True)


def test_a_full_pipe_does_not_block(pipe: tuple[int, int]) -> None:
    connection = SupervisorConnection(pipe[1])
    for _ in range(10_000):
        connection.report(screen_up=True)
    assert TrainingProcessConnection(pipe[0]).read().screen_up is True


def test_the_line_settings_are_told(pipe: tuple[int, int]) -> None:
    controller, terminal = pty.openpty()
    try:
        found = line_settings(terminal)
        assert found is not None
        SupervisorConnection(pipe[1]).report(screen_up=True, settings=found)
        tty.setraw(terminal)
        assert line_settings(terminal) != found
        told = TrainingProcessConnection(pipe[0]).read().settings
        assert told == found
        termios.tcsetattr(terminal, termios.TCSANOW, told)
        assert line_settings(terminal) == found
    finally:
        os.close(controller)
        os.close(terminal)


def test_nonsense_is_ignored(pipe: tuple[int, int]) -> None:
    connection, reader = SupervisorConnection(pipe[1]), TrainingProcessConnection(pipe[0])
    connection.report(screen_up=True)
    os.write(pipe[1], b'not json\n["a list"]\n{"unknown": 1}\n{"screen_up": fa')
    assert reader.read() == TerminalState(screen_up=True)
