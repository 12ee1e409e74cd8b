"""Every way a script can end, under the real command: its exit code, its output, the terminal."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from .running import PLAIN, PYTHON, TRAIN, Screen, run, theirs

pytestmark = pytest.mark.slow

ENDINGS = {
    "exception": ("raise ValueError('of the script')", 1),
    "sys.exit": ("sys.exit(7)", 7),
    "os._exit": ("os._exit(4)", 4),
    "segfault": ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "terminated": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "interrupted": ("raise KeyboardInterrupt", -signal.SIGINT),
}
STAYS = ("exception", "sys.exit", "interrupted")
"""After these the screen stays up until the person leaves it."""


def script(name: str) -> str:
    return TRAIN + "print('trained', *weights(), flush=True)\n" + ENDINGS[name][0] + "\n"


@pytest.mark.parametrize("name", ENDINGS)
def test_without_a_screen_it_ends_as_under_python(name: str, tmp_path: Path) -> None:
    python = subprocess.Popen(
        [*PYTHON, "script.py"], cwd=_written(tmp_path / "same", script(name)), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    ours = run(PLAIN, tmp_path / "same", script(name))
    stdout, stderr = python.communicate(timeout=60)
    assert ours.returncode == python.returncode == ENDINGS[name][1]
    assert ours.stdout == stdout != b""
    if name != "segfault":  # what faulthandler says is told beyond python's own
        assert theirs(ours.stderr) == stderr


def _written(directory: Path, text: str) -> Path:
    directory.mkdir()
    (directory / "script.py").write_text(text, encoding="utf-8")
    return directory


@pytest.mark.parametrize("name", ENDINGS)
def test_under_the_screen_the_terminal_is_restored(name: str, tmp_path: Path) -> None:
    code = ENDINGS[name][1]
    with Screen(tmp_path, script(name)) as session:
        ended = session.leave() if name in STAYS else session.wait_end()
        assert ended == (code if code >= 0 else 128 - code)
        assert session.problems_left() == []
        # What was printed last is repeated on the terminal.
        assert "trained" in session.text
    assert session.log.startswith("trained")
    assert ("ValueError: of the script" in session.log) == (name == "exception")
