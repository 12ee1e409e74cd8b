"""What a script says of its stack at its top level is what it says under plain python: nothing of ours is below it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
import logging, runpy, sys, traceback, warnings

for level in range(1, 7):
    warnings.warn(f"top {level}", stacklevel=level)

def inner():
    for level in range(1, 7):
        warnings.warn(f"inner {level}", stacklevel=level)

inner()
if __name__ == "__main__":
    # A function of runpy's own names its file as ever.
    try:
        runpy.run_path(__file__, run_name="again")
        runpy.run_path("missing.py")
    except OSError:
        traceback.print_exc()
"""

COMMANDS = {
    "as a module": [sys.executable, "-m", "gradtui"],
    "by its command": [str(Path(sys.executable).parent / "gradtui")],
}


def stderr_of(directory: Path, *words: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "always"}
    done = subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if not line.startswith("gradtui: ")]


@pytest.mark.parametrize("way", COMMANDS)
def test_a_script(tmp_path: Path, way: str) -> None:
    (tmp_path / "warns.py").write_text(SCRIPT, encoding="utf-8")
    plain = stderr_of(tmp_path, sys.executable, "warns.py")
    assert sum(line.startswith("sys:1: UserWarning: top") for line in plain) >= 5
    assert stderr_of(tmp_path, *COMMANDS[way], "--plain", "warns.py") == plain


def test_a_module(tmp_path: Path) -> None:
    (tmp_path / "warns.py").write_text(SCRIPT, encoding="utf-8")
    plain = stderr_of(tmp_path, sys.executable, "-m", "warns")
    assert any(line.startswith("<frozen runpy>") for line in plain)
    assert stderr_of(tmp_path, *COMMANDS["as a module"], "--plain", "-m", "warns") == plain
