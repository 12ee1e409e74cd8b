"""Programs in a Python of their own: what changes a process for good, or looks at all of it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = Path(__file__).parents[1]


def run_program(
    source: str,
    *arguments: object,
    stdin: str = "",
    check: bool = True,
    cwd: Path | None = None,
    warnings: str = "",
    **environ: str,
) -> subprocess.CompletedProcess[str]:
    """Run the source of a program, which can import gradtui and what tests import, and capture what it writes.

    Args:
        check: whether to insist on its exit code 0.
        warnings: what Python does with warnings (`-W`), such as "ignore".

    """
    options = ["-W", warnings] if warnings else []
    done = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(source), *map(str, arguments)], input=stdin, cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]), **environ},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert not (check and done.returncode), done.stderr
    return done
