"""The user kills the run from the dialog `q`, on a pseudo-terminal."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from .running import Screen

IN_C = """
import ctypes, signal, time
{}
print("in", flush=True)
libc = ctypes.CDLL(None)
for _ in range(100):
    libc.sleep(60)
"""


def kill(session: Screen) -> None:
    session.wait_log("in")
    session.send("q")
    session.wait_for("Leave gradtui?")
    session.send("K")
    session.wait_for("Press K again")
    session.send("K")


def test_a_hung_script_dies_by_sigterm(tmp_path: Path) -> None:
    with Screen(tmp_path, IN_C.format("")) as session:
        kill(session)
        assert session.wait_end() == 128 + signal.SIGTERM
        assert session.problems_left() == []
        assert "died from SIGTERM" in session.text


@pytest.mark.slow
def test_hung_script_that_ignores_sigterm_dies_by_sigkill(tmp_path: Path) -> None:
    with Screen(tmp_path, IN_C.format("signal.signal(signal.SIGTERM, signal.SIG_IGN)")) as session:
        kill(session)
        session.wait_for("SIGKILL")
        assert session.wait_end() == 128 + signal.SIGKILL
        assert session.problems_left() == []
        assert "died from SIGKILL" in session.text


@pytest.mark.slow
def test_script_handling_sigterm_ends_as_it_likes(tmp_path: Path) -> None:
    handler = """
import sys
def save(number, frame):
    open("saved", "w").close()
    sys.exit(5)
signal.signal(signal.SIGTERM, save)
"""
    with Screen(tmp_path, IN_C.format(handler)) as session:
        kill(session)
        assert session.wait_end() == 5
        assert session.problems_left() == []
    assert (tmp_path / "saved").exists()


@pytest.mark.slow
def test_an_alarm_from_elsewhere_is_passed_on(tmp_path: Path) -> None:
    with Screen(tmp_path, IN_C.format("")) as session:
        session.wait_log("in")
        session.process.kill(signal.SIGALRM)
        assert session.wait_end() == 128 + signal.SIGALRM
        assert session.problems_left() == []
