"""Test gradtui with several versions of Python and torch: python tests/matrix.py [PYTHON:TORCH]... (3.12:2.8).

Without a pair it tests `PAIRS`, which takes an hour, and with `--all` every pair. Each gets a virtual environment of its
own, and runs `SUBSET`: what touches torch and Python. It prints a table in Markdown, and exits with 1 if a test failed. A
pair for which there is no interpreter, no wheel, or only a wheel that brings CUDA along (several GB) is left out without
`--cuda`, and the table says so. Standard library only; it needs a package index.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
TORCHES = ("2.4", "2.6", "2.8", "2.10", "2.13", "2.15")
"""Each version that gradtui treats in another way than the one before. 2.7 differs from 2.6 and 2.8 only where these two do."""
PAIRS = (("3.10", "2.4"), ("3.11", "2.6"), ("3.12", "2.8"), ("3.13", "2.10"), ("3.11", "2.13"), ("3.14", "2.15"))
"""Every version of Python, and every torch."""
SUBSET = (
    "tests/probe/torch_private", "tests/probe/autograd", "tests/probe/activation_checkpointing", "tests/probe/hooks",
    "tests/probe/model", "tests/probe/steps", "tests/probe/gradients", "tests/probe/memory", "tests/probe/frozen",
    "tests/probe/kept_states", "tests/probe/script_calls", "tests/probe/trials", "tests/planner", "tests/samplers",
    "tests/test_architecture.py", "tests/test_package.py", "tests/test_without_linux.py", "tests/test_without_torch.py",
)  # fmt: skip
"""What depends on the versions: not the rules, the reports and the screen, which read plain data."""
NEEDS = (
    "pytest>=8", "pytest-asyncio>=1", "pytest-timeout>=2.3", "pytest-textual-snapshot>=1.1", "pytest-xdist>=3.6",
    "hypothesis>=6.100", "pexpect>=4.9", "pyte>=0.8", "tqdm>=4.66", "numpy>=1.26", "zstandard>=0.22",
    "vl-convert-python>=1.9,<2",
)  # fmt: skip
TIMEOUT_S = 1_800.0
"""Of the tests of one pair."""


@dataclass(frozen=True)
class Outcome:
    """What came of a pair: a word or figures for the table, whether tests failed, how long they took, and which failed."""

    text: str
    failed: bool = False
    seconds: float = 0.0
    """With the installation."""
    cpu_seconds: float = 0.0
    """Of the tests, and of the processes that they started and waited for. Other programs do not change them much."""
    failures: tuple[str, ...] = ()
    """The names of the tests that failed."""


def interpreter(version: str) -> str | None:
    """Return a Python of this version: on the path, else of pyenv."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == version:
        return sys.executable
    if (found := shutil.which(f"python{version}")) is not None and _runs(found):
        return found
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return next((str(each / "bin" / "python3") for each in sorted(versions.glob(f"{version}.*"))), None)


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def tested(python: str, torch: str, folder: Path, tests: list[str], *, cuda: bool, processes: int) -> Outcome:
    """Make the environment of a pair, and run the tests in it."""
    base = interpreter(python)
    if base is None:
        return Outcome("no interpreter")
    began = time.monotonic()
    subprocess.run([base, "-m", "venv", str(folder)], check=True)
    inside = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    wanted = f"torch=={torch}.*"
    plan = _pip(inside, "install", "--dry-run", "--quiet", "--report", "-", "--only-binary", ":all:", wanted)
    if plan.returncode:
        return Outcome("no wheel")
    packages = {each["metadata"]["name"]: each["metadata"]["version"] for each in json.loads(plan.stdout)["install"]}
    if not cuda and any(name.startswith("nvidia-") for name in packages):
        return Outcome(f"{packages['torch']}: only a build with CUDA")
    pinned = f"torch=={packages['torch']}"
    done = _pip(
        inside, "install", "--quiet", "--no-cache-dir", "-c", "requirements-viewer.txt", pinned, *NEEDS, "-e", "."
    )
    if done.returncode:
        return Outcome(f"{packages['torch']}: cannot be installed: {done.stderr.strip().splitlines()[-1]}", failed=True)
    return _run(inside, packages["torch"], [*tests, *_workers(processes)], began)


def _workers(processes: int) -> list[str]:
    return ["-n", str(processes), "--dist", "loadgroup"] if processes > 1 else []


def _run(python: str, torch: str, words: list[str], began: float) -> Outcome:
    options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", "-m", "not slow or versions"]
    command = [python, "-m", "pytest", *options, *words]
    before = _cpu_seconds()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    watch = threading.Timer(TIMEOUT_S, lambda: os.killpg(process.pid, signal.SIGKILL))
    watch.start()
    assert process.stdout is not None
    last = ""
    failures: list[str] = []
    with process.stdout as lines:
        for line in lines:
            print(line, end="", file=sys.stderr, flush=True)
            last = line.strip() or last
            failures += re.findall(r"^(?:FAILED|ERROR) (\S+)", line)
    code = process.wait()
    watch.cancel()
    found = {word: number for number, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", last)}
    counts = ", ".join(f"{number} {word}" for word, number in found.items())
    if not counts:
        counts = f"longer than {TIMEOUT_S:.0f} s" if code < 0 else last
    spent = _cpu_seconds() - before
    return Outcome(f"{torch}: {counts}", code != 0, time.monotonic() - began, spent, tuple(failures))


def _cpu_seconds() -> float:
    """Return what processes that have ended took of the processors' time. 0 on Windows."""
    times = os.times()
    return times.children_user + times.children_system


def _pip(python: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def table(outcomes: dict[tuple[str, str], Outcome]) -> str:
    """Return the outcomes in Markdown: a row for each Python, a column for each torch."""
    pythons, torches = (sorted(set(each), key=_number) for each in zip(*outcomes))
    lines = ["| Python | " + " | ".join(f"torch {each}" for each in torches) + " |", "|---" * (len(torches) + 1) + "|"]
    for python in pythons:
        cells = [outcomes[python, torch].text if (python, torch) in outcomes else "" for torch in torches]
        lines.append(f"| {python} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def failed(outcomes: dict[tuple[str, str], Outcome]) -> Iterator[str]:
    """Yield a line for each pair with failures: how many there are in each file."""
    for (python, torch), outcome in outcomes.items():
        files = Counter(name.partition("::")[0] for name in outcome.failures)
        if files:
            yield f"- {python} with torch {torch}: {', '.join(f'{file} {count}' for file, count in files.items())}"


def main() -> int:
    """Test the pairs of the command line, else `PAIRS`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "pairs", nargs="*", metavar="PYTHON:TORCH", help="such as 3.12:2.8; without one those of an hour"
    )
    parser.add_argument("--all", action="store_true", help="every version of Python with every torch")
    parser.add_argument("--tests", nargs="+", default=list(SUBSET), metavar="PATH", help="other tests than the subset")
    parser.add_argument("--cuda", action="store_true", help="also builds that bring CUDA along, of several GB each")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="of the tests of a pair"
    )
    given = parser.parse_args()
    pairs = [tuple(each.split(":", 1)) for each in given.pairs] or PAIRS
    if given.all:
        pairs = [(one, two) for one in PYTHONS for two in TORCHES]
    outcomes: dict[tuple[str, str], Outcome] = {}
    for python, torch in pairs:
        with tempfile.TemporaryDirectory(prefix="gradtui-matrix-") as folder:
            outcome = tested(python, torch, Path(folder), given.tests, cuda=given.cuda, processes=given.processes)
        outcomes[python, torch] = outcome
        took = f"{outcome.seconds:.0f} s, tests {outcome.cpu_seconds:.0f} s of CPU time"
        print(f"Python {python}, torch {torch}: {outcome.text} ({took})", file=sys.stderr, flush=True)
    print(table(outcomes), *failed(outcomes), sep="\n")
    return int(any(each.failed for each in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
