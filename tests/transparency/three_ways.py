"""Runs a script as plain python, under `gradtui --plain` and under the screen, and says what it left each time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from terminal_session import ROOT, TerminalSession

SCRIPTS = Path(__file__).with_name("scripts")
OVER = re.compile("[✔✖] (ended|failed|interrupted)")
"""What the header says when there is nothing more to come."""


@dataclass(frozen=True)
class Left:
    """What a run has left: `output` is stdout and stderr in one, `files` are those in its working directory."""

    output: bytes
    exit_code: int
    files: dict[str, bytes]


def environment(directory: Path, **more: str) -> dict[str, str]:
    """One in which three runs can be compared: unbuffered, so that stdout and stderr keep their order in one file."""
    fixed = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    own = {"OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(directory / "state"), "COLUMNS": "80"}
    return {**os.environ, **fixed, **own, **more}


def workplace(directory: Path) -> Path:
    """A fresh copy of the scripts, which every run finds under the same path."""
    return Path(shutil.copytree(SCRIPTS, directory / "work"))


def by_python(words: Sequence[str], directory: Path, **environ: str) -> Left:
    """Run as `python SCRIPT`."""
    return _without_screen([sys.executable, *words], directory, "python", environ)


def by_plain(words: Sequence[str], directory: Path, **environ: str) -> Left:
    """Run as `gradtui --plain SCRIPT`; the lines of ours on stderr are taken out."""
    found = _without_screen([sys.executable, "-m", "gradtui", "--plain", *words], directory, "plain", environ)
    theirs = [line for line in found.output.splitlines(keepends=True) if not line.startswith(b"gradtui: ")]
    assert len(theirs) < len(found.output.splitlines()), "gradtui has said nothing: did it run at all?"
    return Left(b"".join(theirs), found.exit_code, found.files)


def by_screen(words: Sequence[str], directory: Path, **environ: str) -> Left:
    """Run as `gradtui SCRIPT` in a terminal, and leave when it is over."""
    place, log = workplace(directory), directory / "screen.log"
    command = [sys.executable, "-m", "gradtui", "--log", str(log), *words]
    with TerminalSession(command, columns=120, lines=36, env=environment(directory, **environ), cwd=place) as session:
        session.wait_until(lambda: OVER.search(session.text), "the end of the script")
        session.send("q")
        code = session.wait_end()
        assert session.problems_left() == []
    return Left(log.read_bytes(), code, _files(place))


def _without_screen(command: Sequence[str], directory: Path, name: str, environ: dict[str, str]) -> Left:
    place, log = workplace(directory), directory / f"{name}.log"
    with log.open("wb") as output:
        done = subprocess.run(
            command, cwd=place, env=environment(directory, **environ), stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, timeout=100, check=False,
        )  # fmt: skip
    return Left(log.read_bytes(), done.returncode, _files(place))


def _files(place: Path) -> dict[str, bytes]:
    """What lies there, which is then removed."""
    there = (path for path in sorted(place.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    found = {str(path.relative_to(place)): path.read_bytes() for path in there}
    shutil.rmtree(place)
    return found
