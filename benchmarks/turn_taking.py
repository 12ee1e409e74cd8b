"""Processes that run the loop side by side, one at a time: each takes steps for half a second when it is its turn.

A machine that others use too gets faster and slower within seconds, which a ratio of two runs that follow each other does not
survive; and two runs of one and the same loop differ by some percent, by where things lie in memory, so there are several of
each. What the C library has once taken it keeps in all of them: else large activations are given back to the system and taken
anew at every step or not, by chance (2,000 to 14,000 page faults a second in runs of one and the same loop with a GPT).
"""

from __future__ import annotations

import json
import os
import random
import select
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from environments import python_of
from loop_process import LOOP, Contender
from pseudo_terminal import PseudoTerminal
from rounds import Absent, Sample, most_lie_between

_MAX_S = 180.0
"""A loop that has not answered by then has ended, or is stuck: a dozen that import torch at once take a minute for it."""
_A_DAY_S = 24 * 3600.0
_KEEPS_MEMORY = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), str(2**32))
"""For glibc; others do not know these."""
_DRAWINGS = 400
"""Of rounds and processes by chance, for how far a ratio can be trusted."""


@dataclass(frozen=True)
class Turns:
    """How the processes take turns: seconds of each that count, before them seconds that do not, and at first a warm-up."""

    seconds: float = 0.5
    uncounted: float = 0.1
    warmup: float = 3.0


class Runner:
    """One process with the loop, which waits for its turn. A context manager."""

    def __init__(self, contender: Contender, size: str, turns: Turns) -> None:
        with ExitStack() as stack:
            self._start(stack, contender, size, turns)
            self._stack = stack.pop_all()

    def _start(self, stack: ExitStack, contender: Contender, size: str, turns: Turns) -> None:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        requests, answers = Path(folder, "requests"), Path(folder, "answers")
        for path in (requests, answers):
            os.mkfifo(path)
        prefix = [word.format(folder=folder) for word in contender.prefix]
        command = [*contender.before, python_of(contender.environment), *prefix, str(LOOP), *contender.after, size]
        command += ["--turns", str(requests), str(answers), "--seconds", str(turns.seconds)]
        command += ["--warmup", str(turns.warmup), "--uncounted", str(turns.uncounted)]
        environment = os.environ | _KEEPS_MEMORY | {"OMP_NUM_THREADS": "1", "STEP_COST_RESULT": os.devnull}
        # Open for both directions: neither blocks, whether or not there is a loop at the other end.
        self._answers = stack.enter_context(open(os.open(answers, os.O_RDWR)))  # noqa: SIM115 - in a stack
        self._requests = stack.enter_context(open(os.open(requests, os.O_RDWR), "w", buffering=1))  # noqa: SIM115
        if contender.on_a_terminal:
            _on_a_terminal(stack, command, environment)
        else:
            _in_the_background(stack, command, environment, folder)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def answer(self) -> dict[str, Any]:
        """Of the turn that was taken last; of the warm-up an empty one. Raises Absent."""
        if not select.select([self._answers], [], [], _MAX_S)[0]:
            raise Absent(f"no answer from the loop within {_MAX_S:.0f} s")
        found: dict[str, Any] = json.loads(self._answers.readline())
        return found

    def turn(self) -> Sample:
        """Take a turn. Raises Absent."""
        self._requests.write("go\n")
        return self.answer()


def _in_the_background(stack: ExitStack, command: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
    output = stack.enter_context(Path(folder, "said.txt").open("wb"))  # noqa: SIM115
    process = subprocess.Popen(
        command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )  # fmt: skip
    stack.callback(process.wait)
    stack.callback(process.kill)


def _on_a_terminal(stack: ExitStack, command: Sequence[str], environment: dict[str, str]) -> None:
    """A thread must read what the screen draws, or the screen waits."""
    terminal = stack.enter_context(PseudoTerminal(command, environment))
    over = threading.Event()
    reader = threading.Thread(target=terminal.read_until, args=(over.is_set, _A_DAY_S))
    reader.start()
    stack.callback(reader.join)
    stack.callback(over.set)


Samples = list[dict[str, list[Sample]]]
"""By round: contender -> what each of its processes measured in its turn."""


def take_turns(contenders: Mapping[str, Contender], size: str, rounds: int, each: int, turns: Turns) -> Samples:
    """Run `each` processes of every contender, in an order of chance in every round. Raises Absent."""
    with ExitStack() as stack:
        ready = [
            (name, stack.enter_context(Runner(contender, size, turns)))
            for _ in range(each)
            for name, contender in contenders.items()
        ]
        for _, runner in ready:
            runner.answer()
        samples: Samples = []
        for _ in range(rounds):
            samples.append({name: [] for name in contenders})
            for name, runner in random.sample(ready, len(ready)):
                samples[-1][name].append(runner.turn())
        return samples


def quiet_third(samples: Sequence[Sample]) -> list[Sample]:
    """The turns with the shortest steps, by CPU time: whoever else uses the machine only ever makes steps longer.

    With turns of half a second, each of them has its share of all that a contender does beside its steps.
    """
    return sorted(samples, key=lambda sample: sample["cpu_us"])[: max(1, len(samples) // 3)]


def mean(samples: Sequence[Sample], quantity: str) -> float:
    """The mean of these turns."""
    return statistics.mean(sample[quantity] for sample in samples)


@dataclass(frozen=True)
class Ratio:
    """A ratio, and between what it lies in 19 of 20 drawings of other rounds and processes from those there were."""

    value: float
    low: float
    high: float


def ratio(samples: Samples, name: str, baseline: str, quantity: str) -> Ratio:
    """The mean over a contender's quiet third of all turns, to the baseline's."""
    rounds, chance = range(len(samples)), random.Random(0)
    pair = [(way, range(len(samples[0][way]))) for way in (name, baseline)]

    def of(at: Sequence[int], processes: Sequence[Sequence[int]]) -> float:
        means = [
            mean(quiet_third([samples[row][way][process] for row in at for process in own]), quantity)
            for (way, _), own in zip(pair, processes)
        ]
        return means[0] / means[1]

    drawn = (
        of(chance.choices(rounds, k=len(rounds)), [chance.choices(own, k=len(own)) for _, own in pair])
        for _ in range(_DRAWINGS)
    )
    return Ratio(of(rounds, [own for _, own in pair]), *most_lie_between(drawn))
