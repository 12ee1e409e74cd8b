"""CPU time of child processes, of those waited for and of those alive, against what the children say themselves."""

from __future__ import annotations

import subprocess
import sys

from gradtui.runner.training_run import child_cpu_seconds

BURN = """
import time
while time.process_time() < 0.2:
    pass
print(time.process_time(), flush=True)
"""


def test_children_count_alive_and_awaited() -> None:
    before = child_cpu_seconds()
    child = subprocess.Popen(
        [sys.executable, "-Sc", BURN + "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    own = float(child.stdout.readline())
    alive = child_cpu_seconds() - before
    child.communicate("\n")
    assert own - 0.03 <= alive < own + 1
    assert own - 0.03 <= child_cpu_seconds() - before < own + 1


def test_grandchildren_count() -> None:
    before = child_cpu_seconds()
    source = f"import subprocess, sys; subprocess.run([sys.executable, '-Sc', {BURN!r}], stdout=2)"
    subprocess.run([sys.executable, "-Sc", source], check=True, stderr=subprocess.DEVNULL)
    assert child_cpu_seconds() - before >= 0.17
