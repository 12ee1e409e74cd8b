"""The lock that only one process can have: many that want locks of their own at the same time all get them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from helpers.terminal_session import ROOT

OWN_LOCKS = """
import sys
from gradtui.runner.lock_file import LockFile
refused = []
for number in range(200):
    locks = [LockFile(sys.argv[1], "kind", f"{number}-{name}-{sys.argv[2]}") for name in "ab"]
    refused += filter(None, [lock.acquire("train.py") for lock in locks])
    for lock in locks:
        lock.release()
print(refused)
"""


def test_locks_that_nobody_else_has_are_never_refused(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", OWN_LOCKS, str(tmp_path), str(number)], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ) for number in range(4)
    ]  # fmt: skip
    assert [process.communicate()[0] for process in running] == ["[]\n"] * 4
    assert list(tmp_path.iterdir()) == []
