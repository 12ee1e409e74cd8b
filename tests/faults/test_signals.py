"""Signals that people and schedulers send in the middle of a run, with the real screen."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from helpers.waiting import wait_until

from .running import PLAIN, TRAIN, Screen, environment

pytestmark = pytest.mark.slow

SAVES = """
calls = []
def save(number, frame):
    calls.append(number)
    print("asked to save", flush=True)
    open("saved", "w").write(repr(weights()))
    sys.exit(5)
signal.signal(signal.SIGTERM, save)
"""
LONG = """
import ctypes
libc = ctypes.CDLL(None)
try:
    print("in", flush=True)
    for _ in range(20):
        libc.usleep(900_000)  # as an operation of torch's that takes a second: no return to Python before its end
except KeyboardInterrupt:
    print("cleaned up", flush=True)
    raise
"""
RAISES = """
class PreemptedError(Exception):
    pass
def warn(number, frame):
    raise PreemptedError("the scheduler wants the machine")
signal.signal(signal.SIGUSR1, warn)
"""


def test_a_handler_of_sigterm_saves_under_the_screen(tmp_path: Path) -> None:
    with Screen(tmp_path, TRAIN + SAVES + "until('never')\n") as session:
        session.wait_training()
        os.kill(session.process.pid, signal.SIGTERM)
        assert session.leave() == 5
        assert session.problems_left() == []
    assert (tmp_path / "saved").exists()


def test_a_handler_of_sigterm_saves_without_a_screen(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TRAIN + SAVES + "until('never')\n", encoding="utf-8")
    # As a scheduler's time limit does it: to the process, and to its whole group.
    command = ["timeout", "--signal=TERM", "60", *PLAIN, "script.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        wait_until(lambda: (tmp_path / "trains").exists() or run.poll() is not None, "training")
        run.send_signal(signal.SIGTERM)
        assert run.communicate(timeout=60)[0].startswith(b"asked to save\n")
    assert run.returncode == 5
    assert (tmp_path / "saved").exists()


def test_handler_error_while_held_reaches_script(tmp_path: Path) -> None:
    catches = "try:\n    until('never')\nexcept PreemptedError as error:\n    print('caught', error)\n    sys.exit(9)\n"
    with Screen(tmp_path, TRAIN + RAISES + catches) as session:
        session.wait_training()
        session.wait_for("5 trainable")
        session.send("pv")
        session.wait_for("  paused")
        os.kill(session.training_process().pid, signal.SIGUSR1)
        session.wait_log("caught the scheduler wants the machine")
        assert session.leave() == 9


def test_ctrl_c_while_held_ends_script_as_ever(tmp_path: Path) -> None:
    catches = "try:\n    until('never')\nexcept KeyboardInterrupt:\n    print('cleaned up')\n    raise\n"
    with Screen(tmp_path, TRAIN + catches) as session:
        session.wait_training()
        session.wait_for("5 trainable")
        session.send("pv")
        session.wait_for("  paused")
        session.send("\x03")
        session.wait_log("cleaned up")
        assert session.leave() == 128 + signal.SIGINT
        assert session.problems_left() == []


def test_ctrl_c_twice_in_a_long_operation(tmp_path: Path) -> None:
    with Screen(tmp_path, TRAIN + LONG) as session:
        session.wait_log("in")
        session.wait_until(lambda: session.full_screen, "the screen, whose keys these are")
        session.send("\x03\x03")
        assert session.leave() == 128 + signal.SIGINT
        assert session.problems_left() == []
    assert session.log.count("cleaned up") == 1
    assert "gradtui" not in session.log


def test_leaving_screen_while_script_is_in_endless_call(tmp_path: Path) -> None:
    with Screen(tmp_path, TRAIN + "import select\nprint('in', flush=True)\nselect.select([], [], [], 60)\n") as session:
        session.wait_log("in")
        session.send("q")
        session.wait_for("Stop training")
        session.send("s")
        session.wait_until(lambda: not session.full_screen and not session.problems_left(), "the terminal as it was")
        session.send("\x03")
        assert session.wait_end() == 128 + signal.SIGINT


def test_kill_from_outside_as_by_oom_killer(tmp_path: Path) -> None:
    with Screen(tmp_path, TRAIN + "print('trained', flush=True)\nuntil('never')\n") as session:
        session.wait_training()
        children = psutil.Process(session.process.pid).children(recursive=True)
        session.training_process().kill()
        assert session.wait_end() == 128 + signal.SIGKILL
        assert session.problems_left() == []
        assert "SIGKILL" in session.text
        assert "trained" in session.text
        assert len(children) == 2  # with the plot server
        assert psutil.wait_procs(children, timeout=20)[1] == []


def test_stopped_and_continued_from_outside(tmp_path: Path) -> None:
    with Screen(tmp_path, TRAIN + "until('go')\nprint('over', flush=True)\n") as session:
        session.wait_training()
        session.wait_for("trainable")
        training = session.training_process()
        training.send_signal(signal.SIGSTOP)
        supervisor = psutil.Process(session.process.pid)
        session.wait_until(lambda: supervisor.status() == psutil.STATUS_STOPPED, "the supervisor stopped with it")
        session.wait_until(lambda: session.problems_left() == [], "the terminal restored meanwhile")
        os.killpg(session.process.pid, signal.SIGCONT)
        session.wait_until(lambda: session.full_screen and "trainable" in session.text, "the screen again")
        (tmp_path / "go").touch()
        assert session.leave() == 0
        assert session.problems_left() == []


def test_ctrl_z_and_back_in_a_shell(tmp_path: Path) -> None:
    shell = ("/bin/bash", "--norc", "-i", "-c", 'set -m; "$@"; echo stopped; fg; echo status $?', "bash")
    with Screen(tmp_path, TRAIN + "until('go')\nsys.exit(3)\n", before=shell) as session:
        session.wait_training()
        session.wait_for("trainable")
        session.send("\x1a")
        session.wait_until(lambda: b"stopped\r\n" in session.raw, "the shell")
        assert session.raw.rfind(b"\x1b[?1049l") < session.raw.rfind(b"stopped\r\n")
        session.wait_until(lambda: session.full_screen and "trainable" in session.text, "the screen again")
        (tmp_path / "go").touch()
        session.wait_for("── exit code")
        session.send("q")
        session.wait_for("status 3")
        assert session.wait_end() == 0
        assert session.problems_left() == []


def test_sizes_of_all_kinds_while_dialogs_are_open(tmp_path: Path) -> None:
    with Screen(tmp_path, TRAIN + "until('go')\nprint('over')\n") as session:
        session.wait_training()
        session.wait_for("trainable")
        for key, words in (("?", " Help "), ("f", "train only"), ("q", "Stop training")):
            session.send(key)
            session.wait_for(words)
            drawn = len(session.raw)
            session.resize(1, 1)
            session.wait_until(lambda drawn=drawn: len(session.raw) > drawn, "something drawn at 1 x 1")
            for columns, lines in ((300, 90), (120, 36)):
                # What is seen after this has been drawn for the new size, whole where its last line is in the last line.
                session.screen.erase_in_display(2)
                session.resize(columns, lines)
                session.wait_until(
                    lambda words=words: words in session.text and "? help" in session.text.splitlines()[-1],
                    f"{words!r} at {columns} x {lines}",
                )
            session.send("\x1b")
            session.wait_gone(words)
        (tmp_path / "go").touch()
        assert session.leave() == 0
        assert session.problems_left() == []
        assert "the dashboard failed" not in session.text
