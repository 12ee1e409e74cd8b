"""Every way a script can end, under the real command: its exit code, its output, the terminal."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from .running import PLAIN, TRAIN, Screen, run, theirs

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


# Exit codes and SIGTERM without a screen: `transparency`, `test_endings_by_signal.py`.
@pytest.mark.parametrize("name", ["exception", "os._exit", "segfault", "interrupted"])
def test_without_a_screen_it_ends_as_under_python(name: str, tmp_path: Path) -> None:
    ours = run(PLAIN, tmp_path / "plain", script(name))
    assert ours.returncode == ENDINGS[name][1]
    assert ours.stdout.startswith(b"trained ")
    assert ours.stdout.count(b"\n") == 1
    printed = theirs(ours.stderr).decode().splitlines()
    if name in ("exception", "interrupted"):
        line = f'  File "{tmp_path / "plain" / "script.py"}", line {script(name).count(chr(10))}, in <module>'
        assert printed[:2] == ["Traceback (most recent call last):", line]
        assert len(printed) == 4
    else:
        assert printed == []


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
