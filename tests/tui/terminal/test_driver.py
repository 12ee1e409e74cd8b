"""The screen on a real pseudo-terminal beside a running script: keys, signals, sizes, crashes, and nothing torn."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from helpers.terminal_session import TerminalSession, launch_command

WAIT = """\
import os, sys, time
def wait():
    end = time.monotonic() + 60  # not for ever, should the test fail
    while not os.path.exists(sys.argv[1]) and time.monotonic() < end: time.sleep(0.01)
"""


class Run:
    """A script on a screen. `go` lets its `wait()` return."""

    def __init__(self, directory: Path, script: str) -> None:
        self.log = directory / "log"
        self._signal = directory / "go"
        path = directory / "train.py"
        path.write_text(WAIT + script, encoding="utf-8")
        self.command = launch_command(self.log, str(path), str(self._signal))

    def go(self) -> None:
        self._signal.touch()

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""


FLOOD = """\
import ctypes, subprocess
print("start")
libc = ctypes.CDLL(None)
for n in range(100):
    print("printed line", "." * 100 * 500)
    os.write(2, b"\\x1b[31mraw bytes to fd 2\\x1b[0m\\n")
    libc.puts(b"from C")
subprocess.run(["sh", "-c", "echo from a subprocess; echo and its stderr >&2"])
print("end")
wait()
"""


def test_a_flood_of_output_never_touches_the_screen(tmp_path: Path) -> None:
    run = Run(tmp_path, FLOOD)
    with TerminalSession(run.command) as session:
        session.wait_for("THE SCREEN")
        session.wait_until(lambda: run.output.endswith("end\n"), "end of the output")
        session.wait_for("size 80x24")
        assert [line for line in session.text.splitlines() if line][1:] == ["size 80x24"]
        run.go()
        assert session.wait_end() == 0
        for part in (b"printed line", b"raw bytes", b"from C", b"subprocess"):
            assert part not in session.raw
    output = run.output
    assert len(output) > 5_000_000
    assert output.count("printed line") == output.count("raw bytes to fd 2") == output.count("from C\n") == 100
    assert "from a subprocess\nand its stderr\n" in output


def test_ctrl_c_interrupts_a_blocked_script(tmp_path: Path) -> None:
    run = Run(
        tmp_path, "try:\n    print('in', flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n    sys.exit(77)\n"
    )
    with TerminalSession(run.command) as session:
        session.wait_for("THE SCREEN")
        session.wait_until(lambda: "in" in run.output, "script started")
        session.send("\x03")
        assert session.wait_end() == 77
        assert session.problems_left() == []


def test_uncaught_ctrl_c_ends_by_sigint(tmp_path: Path) -> None:
    run = Run(tmp_path, "import atexit\natexit.register(print, 'saved')\nprint('in', flush=True)\ntime.sleep(60)\n")
    with TerminalSession(run.command) as session:
        session.wait_for("THE SCREEN")
        session.wait_until(lambda: "in" in run.output, "script started")
        session.send("\x03")
        assert session.wait_end() == 130
        assert session.process.signalstatus == signal.SIGINT
        assert session.problems_left() == []
        assert "saved" in session.text
    assert "KeyboardInterrupt" in run.output
    assert "gradtui" not in run.output


def test_size_follows_while_the_main_thread_is_busy(tmp_path: Path) -> None:
    """The script is in one C call that never returns to the interpreter on the main thread."""
    run = Run(tmp_path, "import select\nprint('in', flush=True)\nselect.select([], [], [], 60)\n")
    with TerminalSession(run.command, env={"COLUMNS": "33", "LINES": "7"}) as session:
        session.wait_for("size 80x24")
        for columns, lines in ((120, 40), (40, 10), (200, 50)):
            session.resize(columns, lines)
            session.wait_for(f"size {columns}x{lines}")


def test_only_the_modes_that_are_wanted(tmp_path: Path) -> None:
    run = Run(tmp_path, "wait()\n")
    with TerminalSession(run.command) as session:
        session.wait_for("size 80x24")
        assert {1000, 1006, 1049} <= session.screen.private_modes
        assert not {1002, 1003, 1016, 2048} & session.screen.private_modes
        assert b"?2048$p" not in session.raw


STREAMS = """\
import signal, threading
first = (sys.stdout, sys.stderr)
assert first == (sys.__stdout__, sys.__stderr__)
assert not os.isatty(1) and sys.stdout.fileno() == 1
handlers = [signal.getsignal(n) for n in (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT, signal.SIGTTOU, signal.SIGTERM)]
assert handlers == [signal.SIG_DFL] * 5, handlers
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert threading.current_thread() is threading.main_thread()
class Tee:
    def __init__(self, stream): self.stream = stream
    def write(self, text): return self.stream.write(text)
    def flush(self): self.stream.flush()
while not os.path.exists(sys.argv[1]):
    assert (sys.stdout, sys.stderr) == first
    time.sleep(0.001)
mine = sys.stdout = Tee(first[0])
print("changed", flush=True)
import threading
while any(t.name == "gradtui-ui" for t in threading.enumerate()):
    assert sys.stdout is mine and sys.stderr is first[1]
    time.sleep(0.001)
assert sys.stdout is mine
assert os.isatty(1) and os.isatty(0)
print("on the terminal")
sys.exit(11)
"""


def test_script_sees_its_own_streams_and_handlers_throughout(tmp_path: Path) -> None:
    run = Run(tmp_path, STREAMS)
    with TerminalSession(run.command) as session:
        session.wait_for("THE SCREEN")
        run.go()
        session.wait_until(lambda: "changed" in run.output, "the script's own stream")
        session.send("q")
        assert session.wait_end() == 11, run.output
        assert session.problems_left() == []
        assert "on the terminal" in session.text
    assert run.output == "changed\n"


LEAVING = """\
print("before", flush=True)
wait()
print("after", flush=True)
os.system("echo a subprocess too")
"""


@pytest.mark.parametrize(("key", "word"), [("q", None), ("x", "the screen crashed: RuntimeError: a bug in a panel")])
def test_training_goes_on_without_the_screen(key: str, word: str | None, tmp_path: Path) -> None:
    run = Run(tmp_path, LEAVING)
    with TerminalSession(run.command, columns=150) as session:
        session.wait_for("THE SCREEN")
        session.wait_until(lambda: "before" in run.output, "script started")
        session.send(key)
        session.wait_for(f"output from before is in {run.log}")
        if word is not None:
            session.wait_for(word)
        assert session.problems_left() == []
        run.go()
        assert session.wait_end() == 0
        assert "after\na subprocess too" in session.text
    assert run.output == "before\n"


def test_terminal_that_goes_away_does_not_stop_training(tmp_path: Path) -> None:
    """With SIGHUP ignored, as under nohup: training goes on, and nothing spins on the dead terminal."""
    run = Run(tmp_path, "wait()\nopen(sys.argv[1] + ' done', 'w')\n")
    command = ["/bin/sh", "-c", 'trap "" HUP; "$@"', "sh", *run.command]
    with TerminalSession(command) as session:
        session.wait_for("THE SCREEN")
        training = session.training_process().children()[0]
        assert training.num_threads() > 1
        session.hang_up()
        session.wait_until(lambda: training.num_threads() == 1, "the end of the screen's threads")
        run.go()
        session.wait_until((tmp_path / "go done").exists, "the end of training")


FORKS = """\
pid = os.fork()
if pid == 0:
    print("in the child", flush=True)
    sys.exit(9)
print("child ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
wait()
"""


def test_process_forked_by_script_leaves_screen_alone(tmp_path: Path) -> None:
    run = Run(tmp_path, FORKS)
    with TerminalSession(run.command) as session:
        session.wait_for("THE SCREEN")
        session.wait_until(lambda: "child ended with 9" in run.output, "end of the child")
        session.resize(90, 30)
        session.wait_for("size 90x30")
        assert session.full_screen
        run.go()
        assert session.wait_end() == 0


def test_first_frame_comes_before_the_script(tmp_path: Path) -> None:
    run = Run(tmp_path, "print(sorted(n for n in ('torch', 'numpy') if n in sys.modules), flush=True)\nwait()\n")
    with TerminalSession(run.command, env={"MINI_MARKER": str(run.log)}) as session:
        session.wait_for("THE SCREEN")
        session.wait_until(lambda: run.output == "[]\n", "the script's output")
        run.go()
        assert session.wait_end() == 0


if sys.platform == "win32":
    pytest.skip("needs a POSIX terminal", allow_module_level=True)
