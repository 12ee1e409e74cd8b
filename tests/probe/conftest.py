"""What all tests of the probe have in common."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers.loggers import imported, logger_class

from gradtui.probe.gradients.buffered_readings import BufferedReadings
from gradtui.probe.model import model_registry
from gradtui.probe.runtime import ReadingInterval, SamplingSchedule
from gradtui.probe.script_calls import fingerprints
from gradtui.probe.torch_private import unshown_tensors
from gradtui.probe.torch_private.operation_mode import something_is_compiled

# torch 2.11 warns when a sparse tensor is made and neither was chosen.
torch.sparse.check_sparse_tensor_invariants.disable()


@pytest.fixture(autouse=True)
def _searches_may_take_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for models is never put off because this machine is slow or busy; the tests of that budget use it up first."""
    monkeypatch.setattr(model_registry, "_SEARCH_NS", 10**13)


@pytest.fixture(autouse=True)
def _no_training_was_saved_before() -> None:
    """A run whose weights may be those of a saved training is compared with it: what another test has saved is no such one."""
    for note in fingerprints.directory().glob("*.json"):
        note.unlink()


@pytest.fixture(autouse=True)
def _graphs_without_a_watch_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before torch 2.10 a graph is read only if it is known that no hooks were set: a watch listens for them."""
    if not unshown_tensors.ARE_SHOWN:
        unshown_tensors.watch(lambda owner, name, wrap: monkeypatch.setattr(owner, name, wrap(getattr(owner, name))))


@pytest.fixture(autouse=True)
def _nothing_stays_compiled() -> Iterator[None]:
    """gradtui profiles no memory in a process that has compiled something: each test begins in one that has not."""
    yield
    if something_is_compiled():
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()


@pytest.fixture
def as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are measured as those on a device are, which arrive on the host later. On the CPU they are read at once."""
    monkeypatch.setattr(BufferedReadings, "_read", lambda *_: None)


@pytest.fixture
def every_step_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms and memory totals are read at every step, whatever share of it that takes."""
    monkeypatch.setattr(ReadingInterval, "every", 1)


@pytest.fixture
def set_reading_interval(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the interval, in steps, between readings of norms and memory totals, whatever they take."""

    def set_to(steps: int) -> None:
        monkeypatch.setattr(ReadingInterval, "every", property(lambda _: steps))

    return set_to


@pytest.fixture
def set_sample_cost(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the seconds that each sample and memory profile costs, whatever it takes: they decide which steps are sampled."""
    record = SamplingSchedule.record_cost

    def set_to(seconds: float) -> None:
        monkeypatch.setattr(SamplingSchedule, "record_cost", lambda schedule, *_: record(schedule, seconds))

    return set_to


@pytest.fixture
def whole_searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Searches of all objects come to their end: the process of the tests has more objects than a script.

    They do not see those that were there before the test, which are many.
    """
    for name in ("gradtui.probe.model.held_objects", "gradtui.probe.memory.kept_tensors"):
        monkeypatch.setattr(sys.modules[name], "_NS", 10**11)
    monkeypatch.setattr(sys.modules["gradtui.probe.model.held_objects"], "_ENTRIES", 10**8)
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def wandb() -> Iterator[Any]:
    """A run of wandb, which keeps what it is given."""
    made = logger_class("Run", "_log")
    with imported("wandb.sdk.wandb_run", Run=made):
        yield made()
