"""Training under the probe in this process, with the rules that are on by default or with others."""

from __future__ import annotations

import gc
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import torch
from helpers.watched import watched

from gradtui.probe.memory import cpu_allocator
from gradtui.probe.samplers.device import DeviceSampler
from gradtui.run.diagnostics import FindingTracker, Rule
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

EVERY_STEP = 100.0
"""The budget with which every step is sampled."""


def state_after(
    train: Callable[[], object],
    *,
    budget: float = EVERY_STEP,
    rules: Sequence[Rule] | None = None,
    samples: bool = False,
) -> RunState:
    """Return the state of a run after `train`, with the findings of `rules`. None: those that are on by default.

    With `samples` the host is read before and after the training, as the sampler thread does.
    """
    tracker, state = FindingTracker(rules), RunState()
    torch.manual_seed(0)
    with watched(budget=budget, allocator=cpu_allocator()) as seen:
        sampler = DeviceSampler(seen.probe.clock.at, lambda: seen.probe.counter.steps, lambda: 0)
        first = [sampler.sample()] if samples else []
        train()
        last = [sampler.sample()] if samples else []
    for event in (*first, *seen.events, *last):
        apply(state, event)
        tracker.on_event(state, event)
    tracker.run(state)
    assert not state.problems
    gc.collect()
    return state


def state_after_script(
    script: Path,
    *arguments: str,
    rules: Sequence[Rule] | None = None,
    budget: float = EVERY_STEP,
    samples: bool = False,
) -> RunState:
    """Return the state of a run after `python SCRIPT ARGUMENTS`, with the findings of `rules`."""
    with mock.patch.object(sys, "argv", [str(script), *arguments]):
        return state_after(
            lambda: runpy.run_path(str(script), run_name="__main__"), rules=rules, budget=budget, samples=samples
        )
