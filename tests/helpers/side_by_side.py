"""Runs a script by us and by plain python, and compares."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from helpers.terminal_session import ROOT, launch_command

RUNPY_FRAME = re.compile(rb'  File "[^"\n]*runpy[^"\n]*", line \d+, in \w+\n(?:    .*\n)*?(?=  File|\S)')


def execute(command: list[str], cwd: Path, **environ: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environ}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)


def ours_and_plain(words: list[str], cwd: Path, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """Run `words` both ways, insist on the same result, and return it."""
    ours = execute(launch_command("-", *words), cwd, **environ)
    plain = execute([sys.executable, *words], cwd, **environ)
    assert ours.stdout == plain.stdout
    assert ours.stderr == RUNPY_FRAME.sub(b"", plain.stderr)
    assert ours.returncode == plain.returncode
    return ours


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path
