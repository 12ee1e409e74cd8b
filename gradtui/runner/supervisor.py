"""The supervisor, a small parent process: it waits for the training process, restores the terminal, and ends the same way.

Runs on the main thread of its own process, which was forked before any thread or heavy import and does nothing but wait
for signals (`sigwait`, so no handler ever runs in the middle of something). Both processes share one process group, so
that a shell's job control sees one job.

Endings: a normal exit gives the same exit code. If a signal killed the training process, the supervisor kills itself by the
same signal, so that a shell, `timeout` or a scheduler sees the same as under plain python (a shell reports 128+N). The
supervisor forwards signals to the training process. The terminal sends Ctrl+C and Ctrl+\\ to both, so these are not forwarded.
If the user asks to kill the run, the supervisor sends SIGTERM, and SIGKILL some seconds later.
A terminal that goes away ends neither (`terminal.SighupAction`).
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable

from gradtui.runner.descendants import Descendants
from gradtui.runner.ending import signal_name
from gradtui.runner.supervisor_connection import SupervisorConnection, TrainingProcessConnection, socket_pair
from gradtui.runner.terminal import ControllingTerminal, is_gone, terminal_width
from gradtui.system.descriptors import duplicate_aside
from gradtui.system.own_frames import PACKAGE_DIRECTORY
from gradtui.transport.log_tail import clip
from gradtui.transport.rank_logs import directory_of, last_job_lines, logs_in

_FORWARDED = {signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGALRM}
_FROM_KEYS = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP}
"""Signals that keys send to the whole group: forwarded only if a process sent them to the supervisor, which Linux reports."""
_WATCHED = _FORWARDED | _FROM_KEYS | {signal.SIGCHLD}

_SENT_BY_KERNEL = 0x80
"""`si_code`, in sigaction(2), of a signal from the terminal, which goes to the whole group."""

KILL_S = 5
"""Seconds between the SIGTERM and the SIGKILL of a process that the user asked to kill."""

_MAX_DUMP = 1 << 20
"""Bytes of faulthandler's dump that are read."""

OUTPUT_LINES = 20
"""Number of the log's last lines shown."""

DUMP_LINES = 40
"""Maximum number of lines of the crashing thread's stack shown."""


def supervise(
    child: Callable[[SupervisorConnection], int],
    at_end: Callable[[], None] = lambda: None,
    *,
    with_descendants: bool = False,
    on_killed: Callable[[int], None] = lambda _signal: None,
) -> int:
    """Fork, run `child` in the new process and wait for it in this one.

    Call it from the main thread before any other thread exists. `child` gets the connection over which the owner of the screen
    reports when the terminal is in application mode. The result of `child` becomes the exit code of its process through a
    normal interpreter shutdown. `at_end` is called in this process afterwards. What the user asks to kill includes the
    processes that descend from the training process if `with_descendants`. `on_killed` is called in this process with the
    signal that ended the training process, unless a key sent it or the user asked for it.

    Returns:
        In the supervisor only: the exit code to pass to `sys.exit`.

    Raises:
        SystemExit: in the training process, with the code that `child` returned.
        BaseException: in the training process, whatever `child` raises (a KeyboardInterrupt ends it by SIGINT).
    """
    terminal = None
    with contextlib.suppress(OSError):
        terminal = ControllingTerminal()
    reading, writing = socket_pair()
    dump = None
    # A nameless file for faulthandler: at a crash, stderr may be the screen or a log that the user does not read.
    with contextlib.suppress(OSError), tempfile.TemporaryFile() as file:
        dump = duplicate_aside(file.fileno())
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    supervisor = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_WATCHED, signal.SIGTTOU})
    process = os.fork()
    if process == 0:
        os.close(reading)
        if terminal is not None:
            terminal.close()
        connection = SupervisorConnection(writing, supervisor)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if dump is not None and not faulthandler.is_enabled():
            with contextlib.suppress(OSError, ValueError):
                faulthandler.enable(file=dump)
        raise SystemExit(child(connection))
    os.close(writing)
    for watched in _WATCHED:
        # Some systems discard a signal whose action is the default, blocked or not, and `sigwait` would miss it.
        signal.signal(watched, lambda _number, _frame: None)
    to_training = TrainingProcessConnection(reading)
    status, killed = _wait(process, terminal, to_training, with_descendants=with_descendants)
    by_user = to_training.read().is_killed or os.WTERMSIG(status) in (signal.SIGINT, signal.SIGQUIT)
    if os.WIFSIGNALED(status) and not by_user:
        with contextlib.suppress(Exception):
            on_killed(os.WTERMSIG(status))

    def ended() -> None:
        at_end()
        if killed is not None:
            killed.kill(0.0 if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else KILL_S)

    return _conclude(status, terminal, to_training, dump, ended)


def _wait(
    process: int,
    terminal: ControllingTerminal | None,
    connection: TrainingProcessConnection,
    *,
    with_descendants: bool,
) -> tuple[int, Descendants | None]:
    """Handle signals until the training process has ended. Returns its wait status, and its descendants when the user asked to
    kill it."""
    has_alarm = False
    killed = None
    while True:
        number = _next_signal()
        if number == signal.SIGHUP and terminal is not None:
            if is_gone(terminal.descriptor):
                # A shell that ends sends SIGHUP to its jobs; training continues.
                continue
            connection.hang_up()
        if number in (signal.SIGTERM, signal.SIGALRM) and connection.read().is_killed:
            # The process may ignore SIGTERM, or its handler may never run.
            # Further requests do not postpone the SIGKILL.
            has_alarm = has_alarm or signal.alarm(KILL_S) == 0
            number = signal.SIGKILL if number == signal.SIGALRM else number
            if with_descendants:
                killed = Descendants(process)
                killed.signal_group(signal.SIGTERM)
        if number != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
            continue
        found, status = os.waitpid(process, os.WNOHANG | os.WUNTRACED)
        if found == 0:
            continue
        if not os.WIFSTOPPED(status):
            return status, killed
        if signal.SIGCONT not in signal.sigpending():
            # Otherwise the whole group was stopped and is running again: the reported stop is over.
            _stop_along(terminal, connection)


def _next_signal() -> int:
    """Wait for the end or stop of the training process, or for a signal that has not reached it by itself."""
    while True:
        if sys.platform == "linux":
            info = signal.sigwaitinfo(_WATCHED)
            if info.si_code != _SENT_BY_KERNEL or info.si_signo == signal.SIGALRM:
                return info.si_signo
        else:
            number = signal.sigwait(_WATCHED)
            if number not in _FROM_KEYS:
                return number


def _stop_along(terminal: ControllingTerminal | None, connection: TrainingProcessConnection) -> None:
    """Restore the terminal after the training process was stopped, and stop too so that the shell notices.

    After a Ctrl+Z, stop all other processes of the group too, as the terminal would have done. When the shell continues the
    group, the training process continues by itself and redraws its screen.
    """
    state = connection.read()
    if terminal is not None and state.screen_up:
        terminal.restore(state.settings)
    if state.stop_group:
        os.killpg(os.getpgrp(), signal.SIGSTOP)
    else:
        os.kill(os.getpid(), signal.SIGSTOP)


def _conclude(
    status: int,
    terminal: ControllingTerminal | None,
    connection: TrainingProcessConnection,
    dump: int | None,
    at_end: Callable[[], None],
) -> int:
    """Restore the terminal if the screen was still up, report what happened, and end as the training process did."""
    state = connection.read()
    was_left_open = state.screen_up and (terminal is None or terminal.is_raw)
    if state.screen_up and terminal is not None:
        terminal.restore(state.settings)
    elif state.is_lent and terminal is not None:
        # Killed in the middle of a line: the line editor or `getpass` had changed the settings.
        terminal.restore_settings(state.settings)
    at_end()
    killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    exit_code = os.WEXITSTATUS(status) if killed_by is None else 128 + killed_by
    if was_left_open or killed_by not in (None, signal.SIGINT):
        stack = os.pread(dump, _MAX_DUMP, 0).decode(errors="replace") if dump is not None else ""
        report = describe(killed_by, exit_code, state.log, stack, width=terminal_width())
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(report)
            sys.stderr.flush()
    if killed_by is not None:
        _die_by(killed_by)
    return exit_code


def _die_by(number: int) -> None:
    """End this process by a signal, without a second core file. Returns only if the signal does not kill."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)


def describe(killed_by: int | None, exit_code: int, log: str | None, dump: str, *, width: int | None = None) -> str:
    """Return the report on an unclean end: what happened, the end of the output, and where the crash was.

    Args:
        killed_by: the signal, or None for a process that exited by itself without closing its screen (`os._exit`).
        exit_code: the exit code to report in that case.
        log: the file that received the output at that time; None if it went to the terminal.
        dump: the dump of faulthandler, possibly empty.
        width: columns of the terminal, to which repeated lines are cut; None to leave them whole.
    """
    if killed_by is not None:
        happened = f"training process died from {signal_name(killed_by)} ({killed_by})"
    else:
        happened = f"training process left without closing its screen (exit code {exit_code})"
    lines = [f"gradtui: {happened}" + (f"; output is in {log}" if log is not None else "")]
    if log is not None and killed_by is not None and logs_in(directory_of(log)):
        lines.append(f"gradtui: its ranks may train on; what they print goes to {directory_of(log)}")
    tail = last_job_lines(log, OUTPUT_LINES) if log is not None else []
    if tail:
        lines += ["gradtui: last lines of the output:", *(clip(f"  {line}", width) for line in tail)]
    stack = _crashing_thread(dump)
    if stack:
        lines += ["gradtui: where it was:", *(f"  {line}" for line in stack)]
    return "\n".join(lines) + "\n"


def _crashing_thread(dump: str) -> list[str]:
    """Return the part of faulthandler's dump about the thread that crashed, without gradtui's frames.

    The format of the dump is a headline, then one block per thread separated by blank lines; the block of the crashing thread
    begins with "Current thread". A crash in a thread without python code has no such block; then only the headline is returned.
    """
    blocks = [block.splitlines() for block in dump.strip().split("\n\n")]
    kept = blocks[0][:1] if dump.strip() else []
    for block in blocks:
        if block and block[0].startswith(("Current thread", "Stack (most recent")):
            kept += [line for line in block if f'File "{PACKAGE_DIRECTORY}' not in line][:DUMP_LINES]
    return kept
