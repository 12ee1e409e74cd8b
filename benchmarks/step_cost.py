"""What a step costs under `gradtui --plain`, against the same script without: fresh processes, taking turns.

    python benchmarks/step_cost.py 0.2 0.5 2 20 gpt --rounds 7

Ratios of two medians, and the spread of the ratios of single rounds; and what gradtui itself says that a step of ours cost.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LOOP = Path(__file__).with_name("training_loop.py")


def run(prefix: list[str], size: str, seconds: float, warmup: float) -> dict[str, Any]:
    """What the loop reports, run behind `prefix`."""
    with tempfile.TemporaryDirectory() as folder:
        result, summary = Path(folder, "result.json"), Path(folder, "summary.json")
        options = ["--plain", "--summary", str(summary)] if prefix else []
        command = [sys.executable, *prefix, *options, str(LOOP), size]
        command += ["--seconds", str(seconds), "--warmup", str(warmup)]
        environment = os.environ | {"STEP_COST_RESULT": str(result)}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found: dict[str, Any] = json.loads(result.read_text())
        if summary.exists():
            told = json.loads(summary.read_text())
            found["said_us"] = told["cost"]["us_per_step"]
            found["norms"] = told["gradient_norm"]["measured_steps"] / told["steps"]
        return found


def compare(size: str, rounds: int, seconds: float, warmup: float) -> None:
    """Print one line for one step length."""
    pairs = []
    for _ in range(rounds):
        without = run([], size, seconds, warmup)
        pairs.append((without, run(["-m", "gradtui"], size, seconds, warmup)))
    text = f"{size:>4}{' ms' if size[0].isdigit() else '   '}"
    for clock in ("wall_us", "cpu_us"):
        without_us = statistics.median(pair[0][clock] for pair in pairs)
        with_us = statistics.median(pair[1][clock] for pair in pairs)
        ratios = sorted(pair[1][clock] / pair[0][clock] for pair in pairs)
        text += f"  {clock[:-3]} {without_us:8.1f} → {with_us:8.1f} µs  x{with_us / without_us:.3f}"
        text += f" ({ratios[0]:.3f}-{ratios[-1]:.3f})  +{with_us - without_us:6.1f} µs"
    said = statistics.median(pair[1]["said_us"] for pair in pairs)
    norms = statistics.median(pair[1]["norms"] for pair in pairs)
    print(f"{text}  says {said:.1f} µs; norms of {100 * norms:.1f} % of steps", flush=True)


def main() -> None:
    """Read the arguments and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", default=["0.2", "0.5", "2", "20", "gpt"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument(
        "--warmup", type=float, default=1.0, help="seconds that are left out, our own warm-up among them"
    )
    arguments = parser.parse_args()
    for size in arguments.sizes:
        compare(size, arguments.rounds, arguments.seconds, arguments.warmup)


if __name__ == "__main__":
    main()
