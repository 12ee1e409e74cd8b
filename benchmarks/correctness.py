"""What those who watch a training get wrong, and we must not: a table of cases, each put to every tool.

    python benchmarks/correctness.py

Each tool runs in a fresh process, in an environment of its own (see `environments.py`), used as its package documents it; the
cases are in `correctness_cases.py`. `by_hand` is the loop that reads `.grad.norm().item()` right after backward.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile

from environments import HERE, last_line, python_of
from rounds import Absent

ENVIRONMENTS = {
    "gradtui": None,
    "by_hand": None,
    "wandb": "wandb",
    "nn_htop": "nn_htop",
    "torch_audit": "torch_audit",
    "torchmortem": "torchmortem",
}
"""Tool -> the environment it needs."""


def verdicts(tool: str) -> dict[str, str]:
    """Case -> verdict. Raises Absent."""
    command = [python_of(ENVIRONMENTS[tool]), str(HERE / "correctness_cases.py"), tool]
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    if ran.returncode:
        raise Absent(last_line(ran.stderr))
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    found: dict[str, str] = json.loads(lines[-1])
    return found


def main() -> None:
    """Print the table, and below it what was seen."""
    table: dict[str, dict[str, str]] = {}
    for tool in ENVIRONMENTS:
        try:
            table[tool] = verdicts(tool)
        except Absent as why:
            print(f"{tool} left out: {why}")
    print(f"{'':<18}" + "".join(f"{tool:<13}" for tool in table))
    for case in next(iter(table.values())):
        print(f"{case:<18}" + "".join(f"{found[case].partition(':')[0]:<13}" for found in table.values()))
    print()
    for tool, found in table.items():
        for case, verdict in found.items():
            if ":" in verdict:
                print(f"{tool}, {case}: {verdict}")


if __name__ == "__main__":
    main()
