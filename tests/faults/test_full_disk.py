"""No room where gradtui writes: the script is told nothing of it, and the person is."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from gradtui.records.export.summary import summarise, write
from gradtui.run.state.run_state import RunState

from .running import PLAIN, TRAIN, Screen, run

pytestmark = pytest.mark.slow


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A device that never has room: one of the test's own where such may be made, so that the machine's is safe."""
    own = tmp_path / "full"
    try:
        os.mknod(own, stat.S_IFCHR | 0o666, os.makedev(1, 7))
        with own.open("wb", buffering=0) as stream:
            stream.write(b"x")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return own
    if not Path("/dev/full").is_char_device():
        pytest.skip("there is no /dev/full here")
    return Path("/dev/full")


PRINTS = """
import subprocess
print("to python's stdout", flush=True)
print("to stderr", file=sys.stderr)
for _ in range(1000):
    print("x" * 1000)
train(5)
try:
    os.write(1, b"past python")
except OSError as error:
    open("told", "w").write(error.strerror)
raise ValueError("of the script")
"""


def test_log_without_room_costs_output_and_not_run(full: Path, tmp_path: Path) -> None:
    with Screen(tmp_path, TRAIN + PRINTS, "--log", str(full)) as session:
        assert session.leave() == 1
        assert session.problems_left() == []
        # The traceback has nowhere else to go.
        assert "ValueError: of the script" in session.text
        # How long the path is decides where the line is broken.
        assert f"bytesoftheoutputarenotin{full}:Nospaceleftondevice" in "".join(session.text.split())
        assert "8 steps, 8 micro-steps" in session.text
    # Known, and written down: what goes past python's streams meets the error itself.
    assert (tmp_path / "told").read_text() == "No space left on device"


def test_file_size_limit_applies_to_script_only(tmp_path: Path) -> None:
    script = TRAIN + (
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "for _ in range(100): print('y' * 99, flush=True)\n"
        "own = os.open('own', os.O_CREAT | os.O_WRONLY)\n"
        "try:\n    os.write(own, b'z' * 5000)\n    os.write(own, b'z')\n"
        "except OSError as error:\n    sys.exit(f'own file: {error.strerror}')\n"
    )
    with Screen(tmp_path, script) as session:
        assert session.leave() == 1
        assert "bytes of the output are not in" in session.text.replace("\n", "")
        assert session.problems_left() == []
    assert len(session.log) == 4096


def test_run_without_log_has_no_screen(tmp_path: Path) -> None:
    launcher = ("-c", "import sys\nfrom gradtui.system import run_files\ndef fails(*_, **__):\n"
             "    raise OSError(30, 'Read-only file system')\nrun_files.write_atomically = fails\n"
             "from gradtui.command_line.cli import main\nsys.argv[0] = 'gradtui'\nsys.exit(main())\n")  # fmt: skip
    (tmp_path / "gradtui").write_text("a file where the folder of the logs would be", encoding="utf-8")
    with Screen(tmp_path, TRAIN + "print('trained', *weights())\n", launcher=launcher) as session:
        assert session.wait_end() == 0
        assert "running with --plain" in session.text
        assert "trained" in session.text
        assert session.problems_left() == []


def test_summary_goes_into_device_without_replacing_it(full: Path, tmp_path: Path) -> None:
    ours = run([*PLAIN, "--summary", str(full)], tmp_path / "run", TRAIN)
    assert ours.returncode == 0
    assert str(full) in ours.stderr.decode()
    assert full.is_char_device()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        write(summarise(RunState(), dropped=0), pipe)
        assert json.loads(reader.communicate(timeout=60)[0])["schema"] == 1
    assert pipe.is_fifo()


def test_a_summary_behind_a_link_stays_there(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old", encoding="utf-8")
    (tmp_path / "latest.json").symlink_to("real.json")
    write(summarise(RunState(), dropped=0), tmp_path / "latest.json")
    assert (tmp_path / "latest.json").is_symlink()
    assert "schema" in (tmp_path / "real.json").read_text(encoding="utf-8")
