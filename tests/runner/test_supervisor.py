"""Every way a training process can end, on a pseudo-terminal with a screen up: the terminal, the exit code, the report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from helpers.terminal_session import TerminalSession, launch_command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX terminal")

WAIT = """\
import os, sys, time
print("output of the script", flush=True)
end = time.monotonic() + 60  # not for ever, should the test fail
while not os.path.exists(sys.argv[1]) and time.monotonic() < end: time.sleep(0.01)
"""


class Run:
    """A script on a screen, which goes on past its start when `go` is called."""

    def __init__(self, directory: Path, ending: str) -> None:
        self.log = directory / "the log.txt"
        self._signal = directory / "go"
        script = directory / "train.py"
        script.write_text(WAIT + ending + "\n", encoding="utf-8")
        self.command = launch_command(self.log, str(script), str(self._signal))

    def go(self) -> None:
        self._signal.touch()


def shell() -> TerminalSession:
    """An interactive shell with job control."""
    return TerminalSession(["/bin/bash", "--norc", "--noprofile", "-i"], env={"PS1": "prompt> "})


def typed(command: list[str]) -> str:
    return " ".join(f"'{word}'" for word in command) + "\r"


ENDINGS = {
    "normal": ("pass", 0, None),
    "exit code": ("sys.exit(3)", 3, None),
    "exception": ("1/0", 1, None),
    "os._exit": ("os._exit(4)", 4, "left without closing its screen (exit code 4)"),
    "os._exit with zero": ("os._exit(0)", 0, "left without closing its screen (exit code 0)"),
    "segfault": ("import ctypes; ctypes.string_at(0)", 139, "died from SIGSEGV (11)"),
    "abort": ("os.abort()", 134, "died from SIGABRT (6)"),
    "kill": ("import signal; os.kill(os.getpid(), signal.SIGKILL)", 137, "died from SIGKILL (9)"),
    "terminate": ("import signal; os.kill(os.getpid(), signal.SIGTERM)", 143, "died from SIGTERM (15)"),
    "interrupt": ("raise KeyboardInterrupt", 130, None),
    "replaced by another program": ("os.execv('/bin/sh', ['sh', '-c', 'exit 6'])", 6, "(exit code 6)"),
}


FRESH = ("normal", "exception", "interrupt")
"""An interpreter starts for these, because it ends in its own way. (`sys.exit` ends it as an exception does.)"""


@pytest.mark.parametrize("name", ENDINGS)
def test_terminal_is_restored(name: str, tmp_path: Path) -> None:
    ending, exit_code, report = ENDINGS[name]
    run = Run(tmp_path, ending)
    with TerminalSession(run.command, columns=120, forked=name not in FRESH) as session:
        session.wait_for("THE SCREEN")
        assert session.full_screen
        assert session.problems_left()
        run.go()
        assert session.wait_end() == exit_code
        assert session.problems_left() == []
        assert "THE SCREEN" not in session.text
        if report is None:
            assert "died" not in session.text
            assert "closing" not in session.text
        else:
            text = session.text.replace("\n", "")
            assert f"gradtui: training process {report}" in text or report in text
            assert f"output is in {run.log}" in text
            assert "output of the script" in text
    assert run.log.read_text(encoding="utf-8").startswith("output of the script\n")


def test_crash_says_where(tmp_path: Path) -> None:
    run = Run(tmp_path, "def innermost():\n    import ctypes\n    ctypes.string_at(0)\ninnermost()")
    with TerminalSession(run.command, columns=140, lines=40) as session:
        session.wait_for("THE SCREEN")
        run.go()
        session.wait_end()
        assert "Fatal Python error: Segmentation fault" in session.text
        assert "in innermost" in session.text
        assert "runner/script.py" not in session.text
        assert "textual" not in session.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_signals_to_the_supervisor_reach_the_script(number: signal.Signals, tmp_path: Path) -> None:
    if number == signal.SIGINT and sys.platform != "linux":
        pytest.skip("only Linux tells who sent a signal")
    # By no `print`: the signal may come while the script's own is still flushing, and a file cannot be entered twice.
    handler = "import os, signal\ndef handle(n, f):\n    os.write(1, b'handled %d\\n' % n); sys.exit(42)\n"
    run = Run(tmp_path, "")
    script = tmp_path / "train.py"
    script.write_text(f"{handler}signal.signal({int(number)}, handle)\n{WAIT}", encoding="utf-8")
    with TerminalSession(run.command) as session:
        session.wait_for("THE SCREEN")
        session.wait_until(lambda: "output of" in run.log.read_text())
        os.kill(session.process.pid, number)
        assert session.wait_end() == 42
        assert session.problems_left() == []
    assert f"handled {int(number)}" in run.log.read_text(encoding="utf-8")


def test_training_process_killed_from_outside(tmp_path: Path) -> None:
    run = Run(tmp_path, "")
    with TerminalSession(run.command) as session:
        session.wait_for("THE SCREEN")
        session.training_process().kill()
        assert session.wait_end() == 128 + signal.SIGKILL
        assert session.process.signalstatus == signal.SIGKILL
        assert session.problems_left() == []


def test_supervisor_killed(tmp_path: Path) -> None:
    """The training process notices and closes its screen; training itself goes on."""
    run = Run(tmp_path, "open(sys.argv[1] + ' done', 'w')")
    with shell() as session:
        session.wait_for("prompt>")
        session.send(typed(run.command))
        session.wait_for("THE SCREEN")
        supervisor = session.training_process()
        training = supervisor.children()[0]
        supervisor.kill()
        session.wait_until(lambda: not session.full_screen, "screen closed")
        session.send("echo the sh''ell\r")
        session.wait_for("the shell")
        assert training.is_running()
        run.go()
        session.wait_until((tmp_path / "go done").exists, "trained to the end")


def test_stopped_from_outside_and_continued(tmp_path: Path) -> None:
    run = Run(tmp_path, "")
    with TerminalSession(run.command) as session:
        session.wait_for("THE SCREEN")
        session.wait_for("size 80x24")
        supervisor, training = psutil.Process(session.process.pid), session.training_process()
        training.send_signal(signal.SIGSTOP)
        session.wait_until(lambda: supervisor.status() == psutil.STATUS_STOPPED, "supervisor stopped")
        session.wait_until(lambda: session.problems_left() == [], "terminal restored while stopped")
        os.killpg(session.process.pid, signal.SIGCONT)
        session.wait_until(lambda: session.full_screen, "screen opened again")
        session.wait_for("size 80x24")
        run.go()
        assert session.wait_end() == 0
        assert session.problems_left() == []


def test_suspend_and_resume_in_a_shell(tmp_path: Path) -> None:
    """Ctrl+Z, `bg` and `fg` under a real shell's job control, with training going on in the background."""
    run = Run(tmp_path, "print('done')")
    with shell() as session:
        session.wait_for("prompt>")
        session.send(typed(run.command))
        session.wait_for("THE SCREEN")
        session.send("\x1a")
        session.wait_for("Stopped")
        assert not session.full_screen
        session.send("stty -a | tr ' ' '\\n' | grep -x -e icanon -e echo | tr '\\n' '+'; echo\r")
        session.wait_for("icanon+echo+")
        session.send("fg\r")
        session.wait_until(lambda: session.full_screen, "screen after fg")
        session.wait_for("size 80x24")
        session.send("\x1a")
        session.wait_until(lambda: not session.full_screen, "stopped again")
        session.send("clear; bg\r")
        session.wait_for("&")
        session.send("echo not a scr''een; jobs\r")
        session.wait_for("not a screen")
        session.wait_for("Running")
        assert not session.full_screen
        session.send("fg\r")
        session.wait_until(lambda: session.full_screen, "screen after bg and fg")
        session.wait_for("THE SCREEN")
        run.go()
        session.wait_until(lambda: not session.full_screen, "end")
        session.send("echo status $?\r")
        session.wait_for("status 0")


def test_ends_in_the_background(tmp_path: Path) -> None:
    run = Run(tmp_path, "print('done')")
    with shell() as session:
        session.wait_for("prompt>")
        session.send(typed(run.command))
        session.wait_for("THE SCREEN")
        session.send("\x1a")
        session.wait_for("Stopped")
        session.send("clear; bg\r")
        session.wait_for("&")
        run.go()
        session.send("wait; echo status $?\r")
        session.wait_for("status 0")
        assert not session.full_screen


def test_supervisor_without_a_terminal(tmp_path: Path) -> None:
    """With no controlling terminal there is nothing to restore, and codes and signals still pass through."""
    program = (
        "import os, sys\nos.setsid()\n"
        "from gradtui.runner.supervisor import supervise\n"
        "sys.exit(supervise(lambda lease: eval(sys.argv[1])))\n"
    )
    for expression, status in (
        ("7", 7),
        ("os.kill(os.getpid(), 9)", -9),
        ("(_ for _ in ()).throw(KeyboardInterrupt)", -2),
    ):
        ended = subprocess_of(program, expression)
        assert ended.returncode == status, ended.stderr


def subprocess_of(program: str, *arguments: str):
    import subprocess

    from helpers.terminal_session import ROOT

    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", program, *arguments], env=environ, capture_output=True, timeout=60)


_ASKED_REPEATEDLY = """
import signal, sys, time
from gradtui.runner import supervisor

supervisor.KILL_S = 1

def child(connection):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        connection.kill()
        time.sleep(0.1)
    return 0

sys.exit(supervisor.supervise(child))
"""


def test_repeated_requests_to_kill_do_not_postpone_end() -> None:
    ended = subprocess.run([sys.executable, "-c", _ASKED_REPEATEDLY], check=False, capture_output=True, timeout=30)
    assert ended.returncode == -signal.SIGKILL
