"""Loss and norms of every step, sampled or only buffered, against references that are computed beside the training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns
from typing import Any, NamedTuple

import pytest
import torch
from helpers import loops
from helpers.examples import combinations, nightly
from helpers.training import seeded_net, square_steps
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gradtui.probe.gradients.applied_parameters import AppliedParameters
from gradtui.probe.gradients.grad_norms import _PIECE
from gradtui.probe.sampling.step_sampler import StepSampler
from gradtui.probe.steps import STEP
from gradtui.protocol.events import GradientsMeasured, NonFiniteFound
from gradtui.protocol.vocabulary import Phase

STEPS = 80
X = torch.linspace(-1, 1, 24).view(6, 4)

pytestmark = pytest.mark.usefixtures("every_step_is_read")


def norm_of(parameters: Iterable[Tensor]) -> float:
    """Of all gradients together, in float64."""
    gradients = [p.grad.coalesce().values() if p.grad.is_sparse else p.grad for p in parameters if p.grad is not None]
    return math.hypot(*(float(torch.linalg.vector_norm(each.detach().double())) for each in gradients))


BUDGETS = ("sampled", "buffered", "some sampled")


@pytest.fixture(params=nightly(BUDGETS[1:], BUDGETS))
def budget(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """A budget with which every step is sampled, or only the first ones, or one of seven besides."""
    if request.param == "some sampled":
        # Asked for when a step begins that may be buffered; a step that is not is handled at once.
        until_due = StepSampler.steps_until_due
        monkeypatch.setattr(StepSampler, "steps_until_due", lambda self, step: min(-step % 7, until_due(self, step)))
    return 1e9 if request.param == "sampled" else 0.0


class Note(NamedTuple):
    """What was noted of one step."""

    losses: list[float]
    after_backward: float
    """The norm of the gradients of `model` when the last backward had ended."""
    applied: float
    """The norm of the gradients that the step was about to apply."""


class Notes:
    """Notes every step of the optimizers, in the order of their first ones."""

    def __init__(self, model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: dict[torch.optim.Optimizer, list[Note]] = {}
        self._losses: list[float] = []
        self._after_backward = 0.0
        backward = Tensor.backward

        def noted(loss: Tensor, *args: Any, **named: Any) -> None:
            self._losses.append(loss.item())
            backward(loss, *args, **named)
            self._after_backward = norm_of(model.parameters())

        monkeypatch.setattr(Tensor, "backward", noted)
        self.stop = register_optimizer_step_pre_hook(self._step).remove

    def _step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        applied = norm_of(p for group in optimizer.param_groups for p in group["params"])
        self.steps.setdefault(optimizer, []).append(Note(self._losses, self._after_backward, applied))
        self._losses = []


@pytest.fixture
def make_notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[nn.Module], Notes]]:
    made: list[Notes] = []

    def make(model: nn.Module) -> Notes:
        made.append(Notes(model, monkeypatch))
        return made[-1]

    yield make
    for notes in made:
        notes.stop()


def few_samples(seen: Watched) -> None:
    """Of a run whose budget allows none, only the first two steps are sampled."""
    seen.probe.step_sampler._cadence._warmup = 2


def mean(losses: list[float]) -> float:
    return math.fsum(losses) / len(losses)


COMBINED: dict[str, tuple[Callable[[list[float]], float], set[str]]] = {
    "plain": (mean, {""}),
    "adamw": (mean, {""}),
    "momentum": (mean, {""}),
    "with_evaluation": (mean, {""}),
    # These divide each loss by the number of backwards.
    "accumulation": (math.fsum, {"sum"}),
    "accumulation_clipped": (math.fsum, {"sum"}),
    # The discriminator has a backward for what is real and one for what is not.
    "gan": (mean, {"mean", ""}),
}
"""How each loop combines the losses of a step, and what is said of that."""


@pytest.mark.parametrize(("name", "budget"), combinations(COMBINED, BUDGETS), indirect=["budget"])
def test_every_step_has_its_loss_and_norm(name: str, budget: float, make_notes: Callable[[nn.Module], Notes]) -> None:
    combine, of = COMBINED[name]
    model = seeded_net()
    notes = make_notes(model)
    with watched(budget=budget) as seen:
        few_samples(seen)
        loops.LOOPS[name](model, lambda step: (X + step % 5 / 10,), lambda output: output.square().mean(), STEPS)
    figures = seen.figures()
    assert [each.step for each in figures] == [*range(1, len(notes.steps) * STEPS + 1)]
    assert {each.loss_of for each in figures} == of
    for first, noted in enumerate(notes.steps.values()):
        told = figures[first :: len(notes.steps)]
        assert len({each.optimizer for each in told}) == 1
        assert [each.loss for each in told] == pytest.approx([combine(note.losses) for note in noted], rel=1e-6)
        assert [each.total for each in told] == pytest.approx([note.applied for note in noted], rel=1e-5)
        if name == "accumulation_clipped":
            before = [each.before_clipping for each in told]
            assert before == pytest.approx([note.after_backward for note in noted], rel=1e-5)
            assert {each.clipped_at for each in told} == {0.1}
        else:
            assert {each.before_clipping for each in told} == {None}
    # The curves of the run are those of the optimizer that stepped first.
    main = next(iter(notes.steps.values()))
    assert seen.state.loss.steps == seen.state.gradient_norm.steps == [*range(1, len(figures) + 1, len(notes.steps))]
    assert seen.state.loss.values == pytest.approx([combine(note.losses) for note in main], rel=1e-6)
    assert seen.state.gradient_norm.values == pytest.approx([note.applied for note in main], rel=1e-5)


def test_steps_of_plainest_loop_are_only_buffered() -> None:
    """So the tests above are of buffered steps, too."""
    with watched(budget=0.0) as seen:
        few_samples(seen)
        model = seeded_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        square_steps(model, optimizer, X, 50)
        assert seen.probe.buffer.thread
    assert {event.step for event in seen.all(GradientsMeasured) if event.total is None} <= {50}


# One thing that is unusual about the gradients. Each loop has its own, and the norms by path that it expects.

Norms = dict[str, float | None]


def trained(
    model: nn.Module,
    loss_of: Callable[[int], Tensor],
    budget: float,
    *,
    lr: float = 0.01,
    parameters: Iterable[Tensor] | None = None,
    steps: int = 40,
    changes: Callable[[int, torch.optim.Optimizer], object] = lambda *_: None,
) -> tuple[Watched, list[float], list[float], Norms]:
    """Train. Return what was seen, the losses, the norm of each step, and the norms of the last one by path."""
    losses, totals = [], []
    norms: Norms = {}
    with watched(budget=budget) as seen:
        few_samples(seen)
        optimizer = torch.optim.SGD(parameters if parameters is not None else model.parameters(), lr=lr)
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            loss = loss_of(step)
            losses.append(loss.item())
            loss.backward()
            changes(step, optimizer)
            if step % 10 == 5 and seen.probe.buffer.thread:
                # As five times a second, within a step or between two.
                seen.probe.buffer.flush(perf_counter_ns())
            own = {id(p): p for group in optimizer.param_groups for p in group["params"]}
            totals.append(norm_of(own.values()))
            norms = {name: norm_of([p]) if p.grad is not None else None for name, p in model.named_parameters()}
            optimizer.step()
            if step % 10 == 0 and seen.probe.buffer.thread:
                seen.probe.buffer.flush(perf_counter_ns())
    return seen, losses, totals, norms


def check(found: tuple[Watched, list[float], list[float], Norms], rel: float = 1e-5) -> None:
    seen, losses, totals, norms = found
    numbers = [*range(1, len(losses) + 1)]
    assert [step for step, _ in seen.losses()] == numbers
    assert [loss for _, loss in seen.losses()] == pytest.approx(losses, rel=1e-6)
    assert [step for step, _ in seen.totals()] == numbers
    assert [total for _, total in seen.totals()] == pytest.approx(totals, rel=rel)
    # They are told in order, each with its own step.
    assert seen.state.loss.steps == seen.state.gradient_norm.steps == numbers
    assert seen.state.loss.values == pytest.approx(losses, rel=1e-6)
    told = seen.norms()
    assert {name for name, norm in told.items() if norm is None} == {
        name for name, norm in norms.items() if norm is None
    }
    for name, norm in norms.items():
        if norm is not None:
            assert told[name] == pytest.approx(norm, rel=rel), name


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters:UserWarning")
def test_a_parameter_that_is_listed_twice_counts_once(budget: float) -> None:
    model = nn.Linear(4, 2)
    parameters = [model.weight, model.bias, model.weight]
    check(trained(model, lambda step: model(X + step / 10).square().mean(), budget, parameters=parameters))


def test_parameters_without_a_gradient_have_no_norm(budget: float) -> None:
    """Those of the branch that a step does not take."""
    branches = nn.ModuleList([nn.Linear(4, 2) for _ in range(3)])
    check(trained(branches, lambda step: branches[step % 2](X).square().mean(), budget))


def test_step_without_gradient_has_loss_only(budget: float) -> None:
    model, other = nn.Linear(4, 2), nn.Linear(4, 2)
    losses = []
    with watched(budget=budget) as seen:
        few_samples(seen)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(1, 31):
            optimizer.zero_grad()
            loss = (model if step % 3 else other)(X).square().mean() + 0 * model(X).sum().detach()
            losses.append(loss.item())
            loss.backward()
            optimizer.step()
    assert [step for step, _ in seen.losses()] == [*range(1, 31)]
    assert [loss for _, loss in seen.losses()] == pytest.approx(losses, rel=1e-6)
    assert [step for step, _ in seen.totals()] == [step for step in range(1, 31) if step % 3]


def test_gradients_of_several_dtypes_and_of_large_tensors(budget: float) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.large = nn.Parameter(torch.randn(_PIECE + 1))
            self.doubles = nn.Parameter(torch.randn(3, dtype=torch.float64))
            self.halves = nn.Parameter(torch.randn(5).bfloat16())
            self.single = nn.Parameter(torch.randn(7))
            self.large_halves = nn.Parameter(torch.randn(2 * _PIECE).bfloat16())

        def forward(self, factor: float) -> Tensor:
            parts = [p.float().square().sum() * factor for p in self.parameters()]
            return torch.stack(parts).sum()

    model = Mixed()
    assert model.large.numel() > 65_536
    check(trained(model, lambda step: model(step), budget, lr=0.0, steps=20))


def test_parameters_that_change_their_dtype_meanwhile(budget: float) -> None:
    """Norms of half precision accumulate in float32 also where the gradients were float32 before."""
    torch.manual_seed(0)
    model = nn.Linear(64, 512)
    x = torch.randn(6, 64)

    def loss_of(step: int) -> Tensor:
        if step == 20:
            model.bfloat16()
        return model(x.to(model.weight.dtype)).float().square().mean()

    check(trained(model, loss_of, budget, lr=0.0))


def test_the_sparse_gradient_of_an_embedding(budget: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 4, sparse=True), nn.Linear(4, 2))

    def loss_of(step: int) -> Tensor:
        # Rows are repeated, and their gradients add up.
        return model(torch.tensor([1, 1, step, step % 7])).square().mean()

    check(trained(model, loss_of, budget))


@pytest.mark.usefixtures("as_on_a_device")
def test_gradients_measured_while_losses_are_buffered(budget: float) -> None:
    """As on a device: norms and loss of a step are handled at different times, and belong together."""
    model = seeded_net()
    check(trained(model, lambda step: model(X + step / 10).square().mean(), budget))


def test_immediate_measuring_looks_parameters_up_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once for norms that are read on the CPU, which these are not, and once for the others."""
    look_ups = 0
    find = AppliedParameters._find

    def counting(self: AppliedParameters, optimizer: torch.optim.Optimizer) -> Any:
        nonlocal look_ups
        look_ups += 1
        return find(self, optimizer)

    monkeypatch.setattr(AppliedParameters, "_find", counting)
    embedding = nn.Embedding(5, 2, sparse=True)
    with watched(budget=0.0) as seen:
        few_samples(seen)
        optimizer = torch.optim.SGD(embedding.parameters(), lr=0.01)
        for step in range(1, 21):
            optimizer.zero_grad()
            embedding(torch.tensor([1, 1])).square().mean().backward()
            before = look_ups
            is_buffered = seen.probe.buffer.idle != 0
            optimizer.step()
            if step > 10:
                assert is_buffered
                assert look_ups - before == 2
                assert seen.probe.buffer.steps == seen.probe.buffer._taken.count(-STEP)
            if step == 15:
                seen.probe.buffer.flush(perf_counter_ns())
                assert seen.probe.buffer.steps == 0
    assert [step for step, _ in seen.totals()] == [*range(1, 21)]


def test_a_gradient_that_becomes_sparse(budget: float) -> None:
    model = nn.Embedding(50, 4)

    def loss_of(step: int) -> Tensor:
        model.sparse = step > 15
        return model(torch.tensor([1, 1, 2])).square().mean()

    check(trained(model, loss_of, budget))


def test_parameters_that_are_added_meanwhile(budget: float) -> None:
    model = seeded_net()

    def changes(step: int, optimizer: torch.optim.Optimizer) -> None:
        if step == 20:
            optimizer.add_param_group({"params": model[2].parameters()})

    check(
        trained(model, lambda step: model(X).square().mean(), budget, parameters=model[0].parameters(), changes=changes)
    )


def test_nan_loss_is_found_at_its_step(budget: float) -> None:
    model = seeded_net()

    def loss_of(step: int) -> Tensor:
        return model(X).square().mean() * (math.nan if step == 25 else 1.0)

    seen, *_ = trained(model, loss_of, budget)
    (found,) = seen.all(NonFiniteFound)
    assert (found.step, found.value, found.phase, found.last_finite) == (25, "NaN", Phase.FORWARD, 24)
    assert math.isnan(dict(seen.losses())[25])
    assert [step for step, loss in seen.losses() if not math.isnan(loss)] == [*range(1, 25)]
    # Every later step has its NaN, too.
    assert [step for step, _ in seen.losses()] == [step for step, _ in seen.totals()] == [*range(1, 41)]


def test_module_with_inf_output_is_found(budget: float) -> None:
    class Overflow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.exp() * 1e38 * 1e38 if overflows else x

    overflows = False
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), Overflow(), nn.Linear(8, 2))

    def loss_of(step: int) -> Tensor:
        nonlocal overflows
        overflows = step == 25
        return model(X).square().mean()

    seen, *_ = trained(model, loss_of, budget)
    found = seen.all(NonFiniteFound)[0]
    assert (found.step, found.value, found.phase, found.last_finite) == (25, "Inf", Phase.FORWARD, 24)
    # Without the calls of modules, the operations after those with parameters of "0" count as its own.
    assert (found.module, found.exact) == (("1", True) if budget else ("0", False))


def test_nan_gradient_is_found_with_its_parameter(budget: float) -> None:
    model = seeded_net()

    def changes(step: int, optimizer: torch.optim.Optimizer) -> None:
        if step == 25:
            model[2].weight.grad[0, 0] = math.nan

    seen, *_ = trained(model, lambda step: model(X).square().mean(), budget, changes=changes)
    found = seen.all(NonFiniteFound)[0]
    assert (found.step, found.value, found.phase, found.last_finite) == (25, "NaN", Phase.BACKWARD, 24)
    assert (found.parameter, found.others, found.exact) == ("2.weight", 0, True)
    assert next(step for step, total in seen.totals() if math.isnan(total)) == 25
    # Norms of all parameters show which one it was.
    told = next(event for event in seen.all(GradientsMeasured) if event.step == 25)
    assert [math.isnan(norm) for norm in told.norms or ()] == [False, False, True, False]


def test_nan_before_clipping_is_blamed_rightly(budget: float) -> None:
    """Clipping by a norm that is NaN makes every gradient so."""
    model = seeded_net()

    def changes(step: int, optimizer: torch.optim.Optimizer) -> None:
        if step == 25:
            model[2].weight.grad[0, 0] = math.nan
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)

    seen, *_ = trained(model, lambda step: model(X).square().mean(), budget, changes=changes)
    found = seen.all(NonFiniteFound)[0]
    assert (found.step, found.value, found.phase, found.last_finite) == (25, "NaN", Phase.BACKWARD, 24)
    assert found.parameter in ("2.weight", None)
    before = {each.step: each.before_clipping for each in seen.figures()}
    assert [step for step, norm in before.items() if norm is None] == []
    assert next(step for step, norm in before.items() if math.isnan(norm)) == 25


def test_recurring_nan_is_told_after_finite_steps(budget: float) -> None:
    model = seeded_net()
    bad = {10, 11, 12, 30}

    def loss_of(step: int) -> Tensor:
        return model(X).square().mean() * (math.nan if step in bad else 1.0)

    def changes(step: int, optimizer: torch.optim.Optimizer) -> None:
        if step in bad:
            for parameter in model.parameters():
                parameter.grad.zero_()

    seen, _, totals, _ = trained(model, loss_of, budget, changes=changes)
    assert [(found.step, found.number, found.last_finite) for found in seen.all(NonFiniteFound)] == [
        (10, 1, 9),
        (30, 2, 29),
    ]
    assert {step for step, loss in seen.losses() if math.isnan(loss)} == bad
    assert [total for _, total in seen.totals()] == pytest.approx(totals, rel=1e-5)


def test_loss_of_several_numbers_is_unknown_without_norms(budget: float) -> None:
    model = seeded_net()
    totals = []
    with watched(budget=budget) as seen:
        few_samples(seen)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(1, 31):
            optimizer.zero_grad()
            output = model(X)
            if step % 2:
                output.backward(torch.ones_like(output))
            else:
                output.sum().backward()
            totals.append(norm_of(model.parameters()))
            optimizer.step()
    assert [step for step, _ in seen.losses()] == [*range(2, 31, 2)]
    assert [total for _, total in seen.totals()] == pytest.approx(totals, rel=1e-5)
