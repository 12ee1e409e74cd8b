"""Runs a script as several ranks, as torchrun does, and shows their events to one viewer."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import distributed

from gradtui.protocol import events as ev
from gradtui.protocol.event_rows import EventReader
from gradtui.run.diagnostics import FindingTracker, Rule
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from helpers.fork_server import ROOT, Popen

PROGRAM = Path(__file__).parent / "rank_events.py"


class Outcome(NamedTuple):
    """What a rank has left."""

    events: list[ev.Event]
    output: str


def outcomes_of_ranks(script: Path, *arguments: str, ranks: int = 2, budget: float = 0.01) -> list[Outcome]:
    """Return the events and the output of each rank after all have ended. Asserts that no rank fails."""
    with tempfile.TemporaryDirectory() as directory:
        outs = [Path(directory) / f"{rank}.events" for rank in range(ranks)]
        commands = [[str(PROGRAM), str(out), str(budget), str(script), *arguments] for out in outs]
        return [Outcome(_read(out), text) for text, out in zip(run_ranks(commands, Path(directory)), outs)]


def run_ranks(commands: Sequence[Sequence[str]], cwd: Path) -> list[str]:
    """Run `python COMMAND` for each rank at the same time; return what they print. Asserts that none fails."""
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    base = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(len(commands))}
    processes = []
    for rank, words in enumerate(commands):
        env = {**base, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        options = {"stdin": -3, "stdout": -1, "stderr": -1, "text": True}
        processes.append(Popen([sys.executable, *words], cwd=cwd, env=env, **options))
    try:
        outputs = [process.communicate(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs):
        assert process.returncode == 0, errors
    return [output for output, _ in outputs]


def state_of_ranks(streams: Sequence[Iterable[ev.Event]], rules: Sequence[Rule] | None = None) -> RunState:
    """Return the state of a viewer that has received these events in the order of their steps, with findings."""
    state, tracker = RunState(), FindingTracker(rules)
    received: list[tuple[int, int, ev.RankEvent]] = []
    for rank, stream in enumerate(streams):
        apply(state, ev.RankJoined(0.0, 0, rank, len(streams), rank, "host", 1 + rank, 0))
        step = 0
        for event in stream:
            # Events keep their order, also those about an earlier step.
            step = max(step, event.step)
            received.append((step, rank, ev.RankEvent(event.at, event.step, rank, 0, event)))
    for _, _, event in sorted(received, key=lambda each: each[:2]):
        apply(state, event)
        tracker.on_event(state, event)
        if event.rank == 0:
            # As the viewer of that rank does.
            tracker.on_event(state, event.event)
    tracker.run(state)
    assert not state.problems
    return state


def _read(path: Path) -> list[ev.Event]:
    reader = EventReader({})
    found = [reader.read(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert not reader.unknown
    return [event for event in found if event is not None]
