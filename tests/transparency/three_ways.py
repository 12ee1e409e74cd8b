"""Runs a script as plain python, under `gradtui --plain` and under the screen, and says what it left each time.

With `fresh` an interpreter starts for it; otherwise the fork server forks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers import fork_server
from helpers.terminal_session import ROOT, TerminalSession

SCRIPTS = Path(__file__).with_name("scripts")
OVER = re.compile(r"[✔✖] .*\b(ended|failed|stopped)\b")
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


def workplace(directory: Path, scripts: Path = SCRIPTS) -> Path:
    """A fresh copy of the scripts, which every run finds under the same path."""
    return Path(shutil.copytree(scripts, directory / "work", ignore=shutil.ignore_patterns("__pycache__")))


def by_python(
    words: Sequence[str], directory: Path, *, scripts: Path = SCRIPTS, fresh: bool = False, **environ: str
) -> Left:
    """Run as `python SCRIPT`."""
    return _without_screen([sys.executable, *words], directory, "python", scripts, fresh, environ)


def by_plain(
    words: Sequence[str], directory: Path, *, scripts: Path = SCRIPTS, fresh: bool = False, options: Sequence[str] = (),
    **environ: str,
) -> Left:  # fmt: skip
    """Run as `gradtui --plain SCRIPT`; the lines of ours on stderr are taken out."""
    command = [sys.executable, "-m", "gradtui", "--plain", *options, *words]
    found = _without_screen(command, directory, "plain", scripts, fresh, environ)
    # A bar of the script's may stand in the line that ours is written to.
    theirs, ours = re.subn(rb"gradtui: [^\n]*\n", b"", found.output)
    assert ours, "gradtui has said nothing: did it run at all?"
    return Left(theirs, found.exit_code, found.files)


def by_screen(
    words: Sequence[str], directory: Path, *, scripts: Path = SCRIPTS, fresh: bool = False, options: Sequence[str] = (),
    size: tuple[int, int] = (120, 36), look: Callable[[TerminalSession], None] = lambda _session: None, **environ: str,
) -> Left:  # fmt: skip
    """Run as `gradtui SCRIPT` in a terminal of `size` (columns, rows), and leave when it is over.

    `look` is given the terminal when the script has been started.
    """
    folder, log = workplace(directory, scripts), directory / "screen.log"
    command = [sys.executable, "-m", "gradtui", "--log", str(log), *options, *words]
    with TerminalSession(
        command, columns=size[0], lines=size[1], env=environment(directory, **environ), cwd=folder, forked=not fresh
    ) as session:
        look(session)
        session.wait_until(lambda: OVER.search(session.text), "the end of the script")
        session.send("q")
        code = session.wait_end()
        assert session.problems_left() == []
    return Left(log.read_bytes(), code, _files(folder))


def _without_screen(
    command: Sequence[str], directory: Path, name: str, scripts: Path, fresh: bool, environ: dict[str, str]
) -> Left:
    folder, log = workplace(directory, scripts), directory / f"{name}.log"
    run = subprocess.run if fresh else fork_server.run
    with log.open("wb") as output:
        done = run(
            command, cwd=folder, env=environment(directory, **environ), stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, timeout=100, check=False,
        )  # fmt: skip
    return Left(log.read_bytes(), done.returncode, _files(folder))


def _files(folder: Path) -> dict[str, bytes]:
    """What lies there, which is then removed."""
    there = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    found = {str(path.relative_to(folder)): path.read_bytes() for path in there}
    shutil.rmtree(folder)
    return found
