"""Which gradient is told: the one applied, in every loop, against norms that the script computes by hand in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec

import pytest
import torch
from helpers.training import seeded_net
from helpers.watched import Watched, watched
from torch import Tensor, nn

from gradtui.protocol.codec import from_words
from gradtui.protocol.commands import Command, FollowMicroSteps
from gradtui.protocol.events import CommandRejected, GradientsMeasured, MicroStepMeasured
from gradtui.protocol.schedule import is_schedulable

STEPS, MICRO_STEPS, SCALE = 4, 3, 512.0
X = torch.linspace(-1, 1, 48).view(12, 4)


def by_hand(gradients: Iterable[Tensor]) -> float:
    """Squares added up one by one, in float64 and without an operation of torch's."""
    return math.sqrt(math.fsum(x * x for g in gradients for x in g.detach().double().flatten().tolist()))


@dataclass
class CommandResult:
    """What one step applied: norms by path, and the total from before the script clipped it."""

    norms: dict[str, float]
    loss: float | None
    """Of several backwards the sum of theirs: each loop divides by their number."""
    before_clipping: float | None

    @property
    def total(self) -> float:
        return math.sqrt(math.fsum(norm * norm for norm in self.norms.values()))


@dataclass
class Notes:
    """What a script writes down about `model` as it trains it."""

    model: nn.Module
    applied: list[CommandResult] = field(default_factory=list)
    accumulated: list[float] = field(default_factory=list)
    """Totals after each backward, in order."""

    def backward(self, scale: float = 1.0) -> None:
        """A backward of a loss multiplied by `scale` has ended."""
        self.accumulated.append(self.total(scale))

    def total(self, scale: float = 1.0) -> float:
        return by_hand(p.grad for p in self.model.parameters() if p.grad is not None) / scale

    def step(
        self,
        losses: Tensor | Iterable[Tensor] | None,
        parameters: Iterable[Tensor] | None = None,
        *,
        scale: float = 1.0,
        before_clipping: float | None = None,
    ) -> None:
        """An optimizer of these parameters (all of them) is about to apply its gradients, or has just done it."""
        mine = {id(p) for p in parameters} if parameters is not None else None
        named = [(n, p.grad) for n, p in self.model.named_parameters() if mine is None or id(p) in mine]
        norms = {name: by_hand([gradient]) / scale for name, gradient in named if gradient is not None}
        loss = None
        if losses is not None:
            each = [losses] if isinstance(losses, Tensor) else losses
            loss = math.fsum(value.item() for value in each)
        self.applied.append(CommandResult(norms, loss, before_clipping))

    def check(self, seen: Watched) -> None:
        measured = seen.all(GradientsMeasured)
        paths = [info.path for info in seen.state.tree.parameters]
        assert len(measured) == len(self.applied) > 0
        for event, expected in zip(measured, self.applied):
            assert event.norms is not None
            ours = dict(zip(paths, event.norms))
            assert {path: ours[path] for path in expected.norms} == pytest.approx(expected.norms, rel=1e-5)
            assert event.total == pytest.approx(expected.total, rel=1e-5)
            assert event.before_clipping == pytest.approx(expected.before_clipping, rel=1e-5)
            if expected.loss is not None:
                assert event.loss == pytest.approx(expected.loss, rel=1e-5)


def loss_of(model: nn.Module, step: int) -> Tensor:
    return model(X + 0.1 * step).square().mean()


def plain(model: nn.Module, notes: Notes) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        notes.backward()
        notes.step(loss)
        optimizer.step()


def clipped_by_norm(model: nn.Module, notes: Notes) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        notes.backward()
        before = notes.total()
        nn.utils.clip_grad_norm_(model.parameters(), before / 3)
        assert notes.total() < before / 2
        notes.step(loss, before_clipping=before)
        optimizer.step()


def clipped_by_value(model: nn.Module, notes: Notes) -> None:
    """There is no norm to tell from before this, only the one that is applied."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        notes.backward()
        before = notes.total()
        nn.utils.clip_grad_value_(model.parameters(), 1e-3)
        assert notes.total() < before / 2
        notes.step(loss)
        optimizer.step()


def accumulated(model: nn.Module, notes: Notes) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        losses = []
        for micro_step in range(MICRO_STEPS):
            losses.append(loss_of(model, step * MICRO_STEPS + micro_step) / MICRO_STEPS)
            losses[-1].backward()
            notes.backward()
        notes.step(losses)
        optimizer.step()
        optimizer.zero_grad()


def accumulated_and_clipped(model: nn.Module, notes: Notes) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        losses = []
        for micro_step in range(MICRO_STEPS):
            losses.append(loss_of(model, step * MICRO_STEPS + micro_step) / MICRO_STEPS)
            losses[-1].backward()
            notes.backward()
        before = notes.total()
        nn.utils.clip_grad_norm_(model.parameters(), before / 3)
        notes.step(losses, before_clipping=before)
        optimizer.step()


def scaled(*, fused: bool, unscale: bool, micro_steps: int = 1) -> Callable[[nn.Module, Notes], None]:
    """With a GradScaler. Its factor is in the gradients of a fused optimizer until the step itself takes it out."""

    def loop(model: nn.Module, notes: Notes) -> None:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
        for step in range(STEPS):
            optimizer.zero_grad()
            losses = []
            for micro_step in range(micro_steps):
                losses.append(loss_of(model, step * micro_steps + micro_step) / micro_steps)
                scaler.scale(losses[-1]).backward()
                notes.backward(SCALE)
            before = None
            if unscale:
                scaler.unscale_(optimizer)
                before = notes.total()
                nn.utils.clip_grad_norm_(model.parameters(), before / 3)
            notes.step(losses, scale=1.0 if unscale else SCALE, before_clipping=before)
            scaler.step(optimizer)
            scaler.update()

    return loop


def lbfgs(model: nn.Module, notes: Notes) -> None:
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    for step in range(STEPS):
        last: list[Tensor] = []

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, step)  # noqa: B023 - called within this iteration only
            loss.backward()
            notes.backward()
            last[:] = [loss]  # noqa: B023
            return loss

        optimizer.step(closure)
        notes.step(last[0])


def several_optimizers(model: nn.Module, notes: Notes) -> None:
    """Two of them, after one backward."""
    first, last = model[0], model[2]  # type: ignore[index]
    optimizers = [torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.Adam(last.parameters(), lr=1e-2)]
    for step in range(STEPS):
        loss = loss_of(model, step)
        loss.backward()
        notes.backward()
        for optimizer, part in zip(optimizers, (first, last)):
            notes.step(loss if part is first else None, part.parameters())
            optimizer.step()
            optimizer.zero_grad()


def step_in_backward(model: nn.Module, notes: Notes) -> None:
    """One optimizer per parameter, stepped as soon as its gradient is there."""
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step_and_clear(parameter: Tensor) -> None:
        notes.step(None, [parameter])
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step_and_clear)
    for step in range(STEPS):
        loss_of(model, step).backward()


LOOPS: dict[str, Callable[[nn.Module, Notes], None]] = {
    "plain": plain,
    "clipped by norm": clipped_by_norm,
    "clipped by value": clipped_by_value,
    "accumulated": accumulated,
    "accumulated and clipped": accumulated_and_clipped,
    "GradScaler": scaled(fused=False, unscale=False),
    "GradScaler, unscale_": scaled(fused=False, unscale=True),
    "GradScaler, fused": scaled(fused=True, unscale=False),
    "GradScaler, fused, unscale_": scaled(fused=True, unscale=True),
    "GradScaler, fused, accumulated": scaled(fused=True, unscale=False, micro_steps=MICRO_STEPS),
    "LBFGS": lbfgs,
    "several optimizers": several_optimizers,
    "step in backward": step_in_backward,
}

ONE_OPTIMIZER = {
    "plain": 1, "clipped by norm": 1, "clipped by value": 1, "accumulated": MICRO_STEPS,
    "accumulated and clipped": MICRO_STEPS, "GradScaler": 1, "GradScaler, unscale_": 1, "GradScaler, fused": 1,
    "GradScaler, fused, unscale_": 1, "GradScaler, fused, accumulated": MICRO_STEPS,
}  # fmt: skip
"""Those in which every step is one of the same optimizer's: how many micro-steps it has."""


def check_micro_steps(notes: Notes, seen: Watched, a_step: int = 1) -> None:
    """What is told of them is what the script had noted, numbered from 1 within each step."""
    told = seen.all(MicroStepMeasured)
    assert [event.total for event in told] == pytest.approx(notes.accumulated, rel=1e-5)
    assert [(event.step, event.number) for event in told] == [
        (step, number) for step in range(1, len(told) // a_step + 1) for number in range(1, a_step + 1)
    ]


def follow(on: bool = True) -> Callable[[int], Command]:
    return lambda number: FollowMicroSteps(number, on)


@pytest.mark.parametrize("name", ONE_OPTIMIZER)
def test_micro_steps_are_told_with_accompanying_gradients(name: str) -> None:
    model = seeded_net()
    notes = Notes(model)
    with watched() as seen:
        seen.submit(follow())
        LOOPS[name](model, notes)
    notes.check(seen)
    check_micro_steps(notes, seen, ONE_OPTIMIZER[name])


def test_backward_is_micro_step_of_first_optimizer() -> None:
    model = seeded_net()
    notes = Notes(model)
    with watched() as seen:
        seen.submit(follow())
        several_optimizers(model, notes)
    told = seen.all(MicroStepMeasured)
    assert [event.total for event in told] == pytest.approx(notes.accumulated, rel=1e-5)
    assert [(event.step, event.number) for event in told] == [(1 + 2 * step, 1) for step in range(STEPS)]


def test_repeated_closure_has_micro_step_each_time() -> None:
    model = seeded_net()
    notes = Notes(model)
    with watched() as seen:
        seen.submit(follow())
        lbfgs(model, notes)
    told = seen.all(MicroStepMeasured)
    assert len(told) > STEPS
    assert [event.total for event in told] == pytest.approx(notes.accumulated, rel=1e-5)
    starts = [index for index, event in enumerate(told) if event.number == 1]
    assert [told[index].step for index in starts] == [1, 2, 3, 4]


def test_gradients_cleared_within_backward_leave_nothing() -> None:
    model = seeded_net()
    with watched() as seen:
        seen.submit(follow())
        step_in_backward(model, Notes(model))
    assert seen.all(MicroStepMeasured) == []


def test_micro_steps_are_followed_on_request_only() -> None:
    model = seeded_net()
    with watched() as seen:
        accumulated(model, Notes(model))
        assert seen.all(MicroStepMeasured) == []
        seen.submit(follow())
        accumulated(model, Notes(model))
        assert seen.state.micro_norms.on
        assert len(seen.all(MicroStepMeasured)) == STEPS * MICRO_STEPS
        seen.probe.report()
        step, norms = seen.state.micro_norms.last()
        assert (step, len(norms)) == (2 * STEPS, MICRO_STEPS)
        seen.submit(follow(False))
        seen.submit(follow(False))
        accumulated(model, Notes(model))
    assert not seen.state.micro_norms.on
    assert len(seen.all(MicroStepMeasured)) == STEPS * MICRO_STEPS
    assert len(seen.all(CommandRejected)) == 1


def test_micro_steps_are_followed_despite_budget() -> None:
    model = seeded_net()
    with watched(budget=0.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        seen.submit(follow())
        for step in range(60):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    assert [event.step for event in seen.all(MicroStepMeasured)] == list(range(1, 61))
    assert [step for step, _ in seen.totals()] == list(range(1, 61))


@pytest.mark.parametrize("name", [name for name in LOOPS if name not in ONE_OPTIMIZER])
def test_what_is_told_is_what_the_step_applies(name: str) -> None:
    model = seeded_net()
    notes = Notes(model)
    with watched() as seen:
        LOOPS[name](model, notes)
    notes.check(seen)


@pytest.mark.skipif(find_spec("lightning") is None, reason="no Lightning for this version of Python")
@pytest.mark.filterwarnings("ignore:.*LeafSpec", "ignore:.*does not have many workers")
@pytest.mark.parametrize("accumulate", [1, MICRO_STEPS])
@pytest.mark.parametrize("clip", [None, "norm", "value"])
def test_lightning_with_automatic_optimization(accumulate: int, clip: str | None) -> None:
    """Forward, zero_grad, backward and clipping run within the optimizer's step, save for the first micro-steps."""
    from helpers.lightning_loop import Automatic, fit

    module = Automatic(seeded_net(), loss_of)
    notes = Notes(module)
    module.notes = notes
    with watched() as seen:
        seen.submit(follow())
        fit(module, steps=STEPS, accumulate=accumulate, clip=clip)
    assert len(notes.applied) == STEPS
    notes.check(seen)
    check_micro_steps(notes, seen, accumulate)


def test_a_schedule_can_ask_for_micro_steps() -> None:
    assert from_words({"command": "follow_micro_steps", "on": True}, 7) == FollowMicroSteps(7, True)
    assert is_schedulable(FollowMicroSteps(7, True))
