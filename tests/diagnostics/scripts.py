"""Runs a script under the probe in this process, and returns what the rules say about it."""

from __future__ import annotations

import gc
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import torch
from watched import watched

from gradtui.diagnostics import FindingTracker
from gradtui.probe.memory import cpu_allocator
from gradtui.reducer import apply
from gradtui.state.run_state import RunState

BUDGET = 100.0


def state_after(script: Path, arguments: Sequence[str] = (), tracker: FindingTracker | None = None) -> RunState:
    """Return the state of a run after a script, with the findings of all rules that are on by default."""
    tracker, state = tracker or FindingTracker(), RunState()
    torch.manual_seed(0)
    with (
        watched(budget=BUDGET, allocator=cpu_allocator()) as seen,
        mock.patch.object(sys, "argv", [str(script), *arguments]),
    ):
        runpy.run_path(str(script), run_name="__main__")
    for event in seen.events:
        apply(state, event)
        tracker.on_event(state, event)
    tracker.run(state)
    assert not state.problems
    gc.collect()
    return state
