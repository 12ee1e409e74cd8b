"""The streams of a script whose log has no room. Each case in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers.terminal_session import ROOT

LOOK = """
    import io, os, sys
    from pathlib import Path
    from gradtui.runner.output_capture import OutputCapture
    said = []
    capture = OutputCapture(Path(sys.argv[1]), on_trouble=said.append)
    def look():
        found = []
        for stream, kept in ((sys.stdout, sys.__stdout__), (sys.stderr, sys.__stderr__)):
            raw = getattr(stream.buffer, "raw", stream.buffer)
            found += [repr(stream), type(stream), stream is kept, raw.name, isinstance(raw, io.FileIO), raw.closefd,
                      stream.fileno(), stream.errors, stream.newlines, stream.encoding, raw.mode, stream.mode,
                      stream.write_through, isinstance(stream.buffer, io.BufferedWriter)]
        return found
"""


def run(program: str, log: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(LOOK) + textwrap.dedent(program), str(log)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip


@pytest.mark.parametrize("options", [(), ("-u",)], ids=["buffered", "unbuffered"])
def test_they_look_as_python_made_them(options: tuple[str, ...], tmp_path: Path) -> None:
    program = """
        before = look()
        capture.start()
        after = look()
        print("kept", end=""); sys.stdout.flush()
        capture.stop(notice=False)
        print([pair for pair in zip(before, after) if pair[0] != pair[1]])
        print("and on stderr", file=sys.stderr)
    """
    ended = run(program, tmp_path / "log", *options)
    assert (ended.stdout, ended.stderr) == ("[]\n", "and on stderr\n")
    assert (tmp_path / "log").read_text() == "kept"


def test_lost_output_is_counted_and_said_once(tmp_path: Path) -> None:
    program = """
        import resource
        capture.start()
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
        print("123456789")
        print("lost on stdout")
        print("lost on stderr", file=sys.stderr)
        capture.stop(notice=False)
        print(capture.lost_bytes, said)
    """
    ended = run(program, tmp_path / "log")
    assert ended.stdout == f"{len('lost on stdout') + len('lost on stderr') + 2} ['File too large']\n"
    assert (tmp_path / "log").read_text() == "123456789\n"


def test_own_file_in_its_place_is_not_spared(tmp_path: Path) -> None:
    program = """
        import resource
        capture.start()
        own = os.open(sys.argv[1] + ".own", os.O_CREAT | os.O_WRONLY)
        os.dup2(own, 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        try:
            print("into it", flush=True)
        except OSError as error:
            os.write(capture._saved[2], error.strerror.encode())
        os._exit(0)
    """
    assert run(program, tmp_path / "log").stderr == "File too large"
