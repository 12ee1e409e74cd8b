"""How much of the measured total is in no category, on the zoo: below 2 % of a step's highest total, or known.

The zoo's models are so small that Python's own objects come to more than their tensors, so each gets a batch that makes a step
hold some twenty MiB.
"""

# Modules and parameters are more loosely typed in torch than a test uses them.
# mypy: disable-error-code="no-untyped-call,unused-ignore"
from __future__ import annotations

import gc

import pytest
import torch
from watched import Watched, watched
from zoo import SPECIMENS

from gradtui.export.summary import summarise
from gradtui.probe.allocators import Allocator, MallocAllocator, cpu_allocator
from gradtui.protocol.events import LedgerTaken
from gradtui.protocol.vocabulary import Phase

STEP_BYTES = 24 << 20
STEPS = 4
MOST = 0.02

OF_LIBRARIES = {
    "bf16": "oneDNN keeps a weight or a batch in a layout of its own",
    "lstm": "oneDNN keeps a workspace",
}
"""More than 2 %, and the same from the first step on."""

OF_PYTHON = {
    "frozen_encoder_with_prompt": "what it holds does not grow with the batch: 100 KiB of objects beside 1 MiB of tensors",
    "nested_200": "two hundred nested modules: half a MiB of objects for the modules' own graph and for what is known of it",
}
"""More than 2 % of these steps, and less than a MiB."""


def train(name: str, times: int, allocator: Allocator | None = None) -> Watched:
    gc.collect()
    with watched(allocator=allocator) as seen:
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
@pytest.mark.parametrize("name", SPECIMENS)
def test_what_nothing_explains_is_little_or_known(name: str) -> None:
    once = train(name, 1).ledgers(Phase.FORWARD)[-1].held
    seen = train(name, max(1, STEP_BYTES // ((once.activations or 0) + (once.input or 0))), MallocAllocator())
    highest = max(ledger.held.total or 0 for ledger in seen.all(LedgerTaken))
    at_load = seen.ledgers(Phase.LOAD)[0].held.other or 0
    phases = summarise(seen.state, dropped=0)["phases"]
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.ZERO_GRAD):
        ledgers = seen.ledgers(phase)
        since = [(ledger.held.other or 0) - at_load for ledger in ledgers]
        most = 1 << 20 if name in OF_PYTHON else MOST * highest
        # Nothing is added from step to step, whatever it is.
        assert abs(since[-1] - since[1]) < most, (phase, since)
        assert name in OF_LIBRARIES or abs(since[-1]) < most, (phase, since)
        of_summary = phases[phase.value]
        held = ledgers[-1].held
        assert (of_summary["other_at_load"] or 0) + of_summary["other_since_load"] == held.other
