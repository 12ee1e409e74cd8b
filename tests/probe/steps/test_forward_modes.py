"""Evaluations of a model in train mode, among calls without gradients that belong to training."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.functional import dropout2d
from torch.optim.swa_utils import update_bn

from gradtui.probe.steps.functional_dropout import dropout_always, leaves_out_units
from gradtui.protocol.call_order import CallOrderMeasured

INPUTS = torch.randn(4, 3)


class Loop:
    """Models, each with an optimizer."""

    def __init__(self, *layers: nn.Module, models: int = 1) -> None:
        self.models = [nn.Sequential(nn.Linear(3, 2), *layers) for _ in range(models)]
        self.optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in self.models]

    def train(self, steps: int) -> None:
        """Train each model."""
        for _ in range(steps):
            for model, optimizer in zip(self.models, self.optimizers, strict=True):
                model(INPUTS).sum().backward()
                optimizer.step()
                optimizer.zero_grad()

    def predict(self, calls: int) -> None:
        """Call the first model without gradients."""
        with torch.no_grad():
            for _ in range(calls):
                self.models[0](INPUTS)


def evaluations(loop: Loop, *work: Callable[[Loop], None]) -> list[tuple[int, int, int, tuple[tuple[str, int], ...]]]:
    """Return count, forwards, first step and layers of the evaluations in train mode."""
    with watched() as seen:
        for each in work:
            each(loop)
    return [
        (each.count, each.calls, each.since_step, each.layers)
        for each in seen.all(CallOrderMeasured)[-1].unfit_evaluations
    ]


def train(loop: Loop) -> None:
    """Train for four steps."""
    loop.train(4)


def test_evaluations_of_several_batches() -> None:
    loop = Loop(nn.BatchNorm1d(2), nn.Dropout(), nn.Dropout())
    found = evaluations(loop, train, lambda each: each.predict(3), train, lambda each: each.predict(2))
    assert found == [(2, 5, 4, (("BatchNorm1d", 1), ("Dropout", 2)))]


def test_evaluations_of_one_batch() -> None:
    assert evaluations(Loop(nn.Dropout()), train, lambda each: each.predict(1)) == [(1, 1, 4, (("Dropout", 1),))]


@pytest.mark.parametrize(
    ("loop", "between"),
    [
        (Loop(nn.LayerNorm(2)), lambda each: each.predict(3)),
        (Loop(nn.Dropout(0.0)), lambda each: each.predict(3)),
        (Loop(nn.BatchNorm1d(2, track_running_stats=False)), lambda each: each.predict(3)),
        (Loop(nn.Dropout()), lambda each: each.predict(20)),
        (Loop(nn.Dropout(), models=2), lambda each: each.predict(1)),
    ],
    ids=["no such layers", "dropout of nothing", "no statistics", "rollouts", "images of a generator"],
)
def test_calls_that_are_no_such_evaluation(loop: Loop, between: Callable[[Loop], None]) -> None:
    assert evaluations(loop, train, between, train) == []


def test_pseudo_labels_at_each_step() -> None:
    def step(loop: Loop) -> None:
        loop.predict(2)
        loop.train(1)

    assert evaluations(Loop(nn.Dropout()), *[step] * 8) == []


@pytest.mark.parametrize("before", [0, 4])
def test_chunks_of_each_step(before: int) -> None:
    """Several backwards for one step, as where gradients are cached. Another model has trained for some steps before."""
    loop, earlier = Loop(nn.Dropout()), Loop()

    def step(loop: Loop) -> None:
        loop.predict(4)
        for _ in range(4):
            loop.models[0](INPUTS).sum().backward()
        loop.optimizers[0].step()
        loop.optimizers[0].zero_grad()

    assert evaluations(loop, lambda _: earlier.train(before), *[step] * 8) == []


def test_statistics_that_are_renewed() -> None:
    """`update_bn` averages over all batches, with `momentum=None`."""
    loop = Loop(nn.BatchNorm1d(2))

    def renew(loop: Loop) -> None:
        update_bn([INPUTS] * 3, loop.models[0])

    assert evaluations(loop, train, renew, train, renew) == []


def test_an_evaluation_in_eval_mode() -> None:
    loop = Loop(nn.Dropout())

    def evaluate(each: Loop) -> None:
        loop.models[0].eval()
        each.predict(3)
        loop.models[0].train()

    assert evaluations(loop, train, evaluate, train, evaluate) == []


class Always(nn.Module):
    """Its dropout is on in both modes."""

    def forward(self, x: Tensor) -> Tensor:
        """Leave out half of the units."""
        return F.dropout(x.relu(), 0.5)


class AlwaysByName(nn.Module):
    """The same, by the name of the function alone."""

    def forward(self, x: Tensor) -> Tensor:
        """Leave out half of the channels."""
        return dropout2d(x)


class AlwaysByPath(nn.Module):
    """The same, by its whole name."""

    def forward(self, x: Tensor) -> Tensor:
        """Leave out half of the units."""
        return torch.nn.functional.dropout(x, p=0.5)


class InTraining(nn.Module):
    """Its dropout depends on the mode."""

    def forward(self, x: Tensor) -> Tensor:
        """Leave out half of the units."""
        return F.dropout(x, 0.5, self.training)


class ByOwnFlag(nn.Module):
    """Its dropout depends on a flag of its own."""

    active = False

    def forward(self, x: Tensor) -> Tensor:
        """Leave out half of the units."""
        return F.dropout(x, 0.5, self.active)


class WithGradients(nn.Module):
    """Its dropout depends on the grad mode."""

    def forward(self, x: Tensor) -> Tensor:
        """Leave out half of the units."""
        if torch.is_grad_enabled():
            x = F.dropout(x, 0.5)
        return x


class OnDemand(nn.Module):
    """Its dropout depends on an argument."""

    def forward(self, x: Tensor, *, sampled: bool = False) -> Tensor:
        """Leave out half of the units."""
        return F.dropout(x, 0.5) if sampled else x


class OnlyOnDemand(nn.Module):
    """The same, with an early end."""

    def forward(self, x: Tensor, *, sampled: bool = False) -> Tensor:
        """Leave out half of the units."""
        if not sampled:
            return x
        return F.dropout(x, 0.5)


class OfNothing(nn.Module):
    """Its dropout leaves out nothing."""

    p = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Leave out no units."""
        return F.dropout(x, self.p)


class InEachOf(nn.Module):
    """Its dropout is in a loop, with a probability of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.p = 0.1

    def forward(self, x: Tensor) -> Tensor:
        """Leave out some units, twice."""
        for _ in range(2):
            x = F.dropout(x.relu(), p=self.p)
        return x


class OfModule(nn.Module):
    """Its dropout is a module."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        """Leave out half of the units."""
        return F.relu(self.dropout(x))


class Pooling(nn.Module):
    """It has a parameter by the name of dropout's probability, with several elements."""

    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.full((2,), 3.0))

    def forward(self, x: Tensor) -> Tensor:
        """Scale it."""
        return self.p * x


class DropoutOfChannels(Pooling):
    """The same, with dropout in its name."""


def test_only_numbers_are_probabilities() -> None:
    loop = Loop(Pooling(), DropoutOfChannels(), nn.Dropout())
    found = evaluations(loop, train, lambda each: each.predict(3))
    assert found == [(1, 3, 4, (("DropoutOfChannels", 1), ("Dropout", 1)))]


def test_evaluations_in_both_modes() -> None:
    loop = Loop(nn.Dropout())

    def evaluate(each: Loop) -> None:
        for mode in (False, True):
            loop.models[0].train(mode)
            each.predict(2)

    assert evaluations(loop, train, evaluate, train, evaluate) == [(2, 4, 4, (("Dropout", 1),))]


@pytest.mark.parametrize(
    ("kind", "always"),
    [
        (Always, True),
        (AlwaysByName, True),
        (AlwaysByPath, True),
        (InEachOf, True),
        (InTraining, False),
        (ByOwnFlag, False),
        (WithGradients, False),
        (OnDemand, False),
        (OnlyOnDemand, False),
        (OfNothing, False),
        (OfModule, False),
        (nn.Dropout, False),
    ],
)
def test_calls_of_functional_dropout(kind: type[nn.Module], always: bool) -> None:
    assert leaves_out_units(kind(), dropout_always(kind)) == always


def test_an_evaluation_in_eval_mode_with_dropout() -> None:
    loop = Loop(Always())

    def evaluate(each: Loop) -> None:
        loop.models[0].eval()
        each.predict(3)
        loop.models[0].train()

    assert evaluations(loop, train, evaluate) == [(1, 3, 4, (("Always", 1),))]
