"""What a return leaves as it is, by name, and what modules put in the place of their tensors."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from helpers.keeping_runs import Run, X, trained
from helpers.watched import watched
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from gradtui.probe.kept_states import RunCopy
from gradtui.protocol import events as ev
from gradtui.protocol.commands import KeepState, ReturnToState


class Meter:
    """As scripts count with."""

    def __init__(self) -> None:
        self.count, self.limit, self.best = 0, 10, float("nan")


def with_own_state() -> tuple[ev.ReturnedToState, str]:
    """Train with generators and tensors of the script. Without an assertion, as in `test_incomplete`."""
    run = Run()
    mine, drawn, other = torch.Generator().manual_seed(1), np.random.default_rng(2), random.Random(3)
    still, meter, queue, batches = torch.Generator().manual_seed(1), Meter(), torch.zeros(4, 2), X.clone()
    average = run.model.average
    with watched() as seen:
        for step in range(8):
            batch = torch.rand(2, generator=mine) + drawn.random() + other.random()
            queue[step % 4] = batch
            meter.count += 1
            run.model.encoder[3].p *= 0.9  # type: ignore[operator]
            if step == 3:
                seen.submit(KeepState)
            if step == 7:
                seen.submit(ReturnToState)
            run.step()
    del still, batches, average
    (answer,) = [each for each in seen.all(ev.CommandApplied) if "returned" in each.text]
    return seen.all(ev.ReturnedToState)[0], answer.text


def test_return_names_what_it_leaves_changed() -> None:
    back, words = with_own_state()
    assert not back.differing
    # That of the test's own harness changes too.
    left = [each for each in back.left if not each.startswith("seen.")]
    assert sorted(left) == ["drawn", "encoder.3.p", "meter.count", "mine", "other", "queue"]
    assert words.endswith(f"; not brought back: {', '.join(back.left[:5])} and {len(back.left) - 5} more")


def kept_and_dropped() -> tuple[list[str], list[object]]:
    """Return what a state has found, and what is left of it when the script has dropped it. Without an assertion."""
    run, meter, queue = Run(), Meter(), torch.zeros(4)
    with watched() as seen:
        for _ in seen.steps(4, {2: KeepState}):
            run.step()
        kept = seen.probe.dispatcher.keeping.states.of_step(2)
        names = [*kept.beside._found] if kept is not None and kept.beside is not None else []
        references = weakref.ref(meter), weakref.ref(queue)
        del meter, queue
        gc.collect()
        return names, [each() for each in references]


def test_state_keeps_nothing_of_script_alive() -> None:
    names, left = kept_and_dropped()
    assert {"meter.count", "queue"} <= {*names}
    assert left == [None, None]


def with_global_generators() -> tuple[list[str], list[str]]:
    """Return what was found, and what has changed when the global generators were drawn from. Without an assertion."""

    def draws(generator: torch.Generator = torch.default_generator, numbers: Any = np.random.mtrand._rand) -> None:
        torch.rand(2, generator=generator)
        numbers.rand()

    run, own, every = Run(), torch.Generator(), [random._inst, torch.default_generator]  # type: ignore[attr-defined]
    with watched() as seen:
        for _ in range(3):
            run.step()
        beside = seen.probe.dispatcher.keeping.beside()
        draws()
        random.random()
        torch.rand(2, generator=own)
        del every
        return [*beside._found], beside.changed(seen.probe.view.tree)


def test_the_global_generators_are_nobodys_own() -> None:
    found, changed = with_global_generators()
    assert "own" in found
    assert [each for each in changed if not each.startswith("seen.")] == ["own"]


class Replacing(nn.Module):
    """Puts another tensor in the place of a buffer, of a plain attribute, and of an output at each step."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(()))
        self.center, self.output = torch.zeros(6), torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.seen + 1
        self.center = 0.9 * self.center + 0.1 * x.mean(0)
        self.output = self.layer(x - self.center)
        return self.output / self.seen

    def values(self) -> list[Any]:
        return [*(each.tolist() for each in self.state_dict().values()), self.center.tolist()]


@pytest.mark.parametrize("removed", [False, True])
def test_buffers_replaced_at_each_step_come_back(removed: bool) -> None:
    model = Replacing()
    optimizer = SGD(model.parameters(), 0.1)
    for _ in range(3):
        model(X).square().mean().backward()
        optimizer.step()
    copied, kept = RunCopy([model], [optimizer], []), model.values()
    model(X).square().mean().backward()
    optimizer.step()
    if removed:
        model.center = torch.zeros(2, 2)
    assert model.values() != kept
    assert copied.objection() is None
    copied.write()
    assert copied.differing() == []
    assert model.values() == kept
    assert model.output.grad_fn is not None


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("adapter", "the parameter encoder.0.down did not exist then"),
        ("optimizer", "the Adam that updates its parameters now did not exist then"),
        ("scheduler", "the StepLR that sets its learning rate now did not exist then"),
    ],
)
def test_what_script_added_since_is_refused_by_name(what: str, why: str) -> None:
    run = Run()
    added: list[Any] = []

    def add() -> None:
        if what == "adapter":
            run.model.encoder[0].down = nn.Parameter(torch.zeros(2, 6))
        elif what == "optimizer":
            added.append(torch.optim.Adam(run.model.head.parameters()))
        else:
            added.append(StepLR(run.optimizer, 2))

    step = run.step

    def step_and_add() -> None:
        if run.scheduler.last_epoch == 4:
            add()
        step()
        if added and what == "optimizer":
            added[0].step()

    run.step = step_and_add  # type: ignore[method-assign]
    seen, _ = trained(run, {2: [KeepState], 8: [ReturnToState]})
    assert seen.refusals() == [why]
