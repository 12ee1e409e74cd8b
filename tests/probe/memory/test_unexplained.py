"""How much of the measured total is in no category, on the zoo: below 2 % of a step's highest total, or known.

The zoo's models are so small that Python's own objects come to more than their tensors, so each gets a batch that makes a step
hold some twenty MiB. Every fourth of them is trained, and nightly each.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from helpers.examples import nightly
from helpers.summaries import summarised
from helpers.watched import CountingAllocator, Watched, watched
from zoo import SPECIMENS

from gradtui.probe.memory import living_graphs
from gradtui.probe.samplers.cpu_memory import MallocAllocator, MemoryCounter, cpu_allocator
from gradtui.protocol.events import MemoryMeasured
from gradtui.protocol.vocabulary import Phase
from gradtui.system.no_collection import no_collection

STEP_BYTES = 24 << 20
STEPS = 4
MAX = 0.02

OF_PYTHON = {
    "frozen_encoder_with_prompt": "what it holds does not grow with the batch: 100 KiB of objects beside 1 MiB of tensors",
    "nested_200": "two hundred nested modules: half a MiB of objects for the modules' own graph and for what is known of it",
}
"""May be more than 2 % of these steps, and is less than a MiB."""


def train(name: str, times: int, counter: Callable[[], MemoryCounter] = CountingAllocator) -> Watched:
    gc.collect()
    # Only now: what is collected after the counter was made is subtracted from what it counts.
    with watched(allocator=counter()) as seen:
        specimen = SPECIMENS[name]()
        optimizer = torch.optim.SGD(specimen.model.parameters(), lr=1e-3)
        for step in range(STEPS):
            batch = [torch.cat([tensor] * times) for tensor in specimen.batch(step)]
            loss = specimen.loss(specimen.model(*batch))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return seen


@pytest.mark.skipif(not isinstance(cpu_allocator(), MallocAllocator), reason="no glibc malloc that tells its totals")
@pytest.mark.parametrize("name", [*SPECIMENS][:: nightly(4, 1)])
def test_what_nothing_explains_is_little_or_known(name: str) -> None:
    once = train(name, 1).ledgers(Phase.FORWARD)[-1].held
    seen = train(name, max(1, STEP_BYTES // ((once.activations or 0) + (once.input or 0))), MallocAllocator)
    highest = max(ledger.held.total or 0 for ledger in seen.all(MemoryMeasured))
    phases = summarised(seen.state)["phases"]
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.ZERO_GRAD):
        found = phases[phase.value]
        parts = [found["other_at_load"], found["other_first_step"], found["other_since"]]
        assert sum(part or 0 for part in parts) == found["bytes_end"]["other"]
        # What comes with the first step is libraries': oneDNN's for bf16 and LSTM, whatever the size of the step.
        most = 1 << 20 if name in OF_PYTHON else MAX * highest
        assert abs(found["other_since"]) < most, (phase, parts)
        if name not in ("bf16", "lstm"):
            assert abs(found["other_first_step"]) < most, (phase, parts)


@pytest.mark.parametrize("young", [True, False])
def test_search_keeps_no_object_until_next_garbage_collection(young: bool) -> None:
    with no_collection():
        tensor = torch.ones(3)
        alive = weakref.ref(tensor)
        found = living_graphs._tensors(young=young)
        assert any(each is tensor for each in found)
        del found, tensor
        assert alive() is None
