"""GT212 and GT214 under the probe: clipping that has no effect, or another one than intended."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from unittest import mock

import pytest
import torch
from helpers.matches_after import matches_after
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.probe.runtime import ReadingInterval

STEPS = 6
Parameters = Iterable[Tensor]


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def loss_of(model: nn.Module) -> Tensor:
    inputs = torch.randn(5, 4)
    return (model(inputs) - 30 * inputs[:, :1]).square().mean()


def late(limit: float) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        nn.utils.clip_grad_norm_(model.parameters(), limit)


def with_generator(make: Callable[[nn.Module], Parameters]) -> None:
    model = net()
    parameters = make(model)
    optimizer = torch.optim.Adam(parameters)
    for _ in range(STEPS):
        loss_of(model).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()


def early(*, set_to_none: bool) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = loss_of(model)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        loss.backward()
        optimizer.step()


def test_after_the_step() -> None:
    (found,) = matches_after("GT212", lambda: late(1.0))
    assert (found.evidence["late"], found.key) == (STEPS, "late")
    assert found.site.file == __file__


@pytest.mark.parametrize("limit", [float("inf"), 1e9])
def test_call_that_cuts_nothing_asks_for_norm(limit: float) -> None:
    assert matches_after("GT212", lambda: late(limit)) == []


@pytest.mark.filterwarnings("ignore:`parameters` is an empty generator:UserWarning")
@pytest.mark.parametrize(
    "make", [lambda model: model.parameters(), lambda model: filter(lambda _: True, model.parameters())]
)
def test_of_an_exhausted_generator(make: Callable[[nn.Module], Parameters]) -> None:
    (found,) = matches_after("GT212", lambda: with_generator(make))
    assert (found.evidence["empty"], found.key) == (STEPS, "empty")


def test_the_warning_of_torch_is_the_same() -> None:
    """The probe reads the generator, and torch still sees one."""

    def warned() -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with_generator(lambda model: model.parameters())
        return [f"{each.filename} {each.message}" for each in caught]

    expected = warned()
    with watched():
        assert warned() == expected


@pytest.mark.parametrize("set_to_none", [True, False])
def test_before_the_backward(set_to_none: bool) -> None:
    (found,) = matches_after("GT212", lambda: early(set_to_none=set_to_none))
    assert found.key == "early"


def test_correct_clipping() -> None:
    """Of a generator that is read once, two optimizers after one backward, assigned gradients, and a frozen part."""

    def train() -> None:
        one, other, frozen = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(4, 4).requires_grad_(False)
        first, second = torch.optim.SGD(one.parameters(), 1e-3), torch.optim.Adam(other.parameters())
        for step in range(STEPS):
            loss = loss_of(nn.Sequential(frozen, one, other))
            if step % 2:
                parameters = [*one.parameters(), *other.parameters()]
                for each, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
                    each.grad = gradient
            else:
                loss.backward()
            nn.utils.clip_grad_norm_(frozen.parameters(), 1.0)
            for part, optimizer in ((one, first), (other, second)):
                nn.utils.clip_grad_norm_((each for each in part.parameters()), 1.0)
                optimizer.step()
                optimizer.zero_grad()

    assert matches_after("GT212", train) == []
    assert matches_after("GT214", train) == []


def test_last_norm_is_not_that_of_clipped_gradients() -> None:
    torch.manual_seed(0)
    applied: list[float] = []

    def train() -> None:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(200):
            optimizer.zero_grad()
            loss_of(model).backward()
            applied.append(
                float(torch.linalg.vector_norm(torch.cat([each.grad.flatten() for each in model.parameters()])))
            )
            optimizer.step()
            nn.utils.clip_grad_norm_(model.parameters(), 1e-6)

    # The last step is one that is not read before it.
    with mock.patch.object(ReadingInterval, "every", 1_000), watched(budget=1e-9) as seen:
        train()
    assert all(total == pytest.approx(applied[step - 1], rel=1e-5) for step, total in seen.totals())


def in_two_phases(*, clips_all: bool) -> None:
    """The optimizer of the last layer steps no more, and the layer still gets gradients."""
    model = net()
    first, second = (torch.optim.SGD(model[index].parameters(), lr=1e-3) for index in (2, 0))
    for step in range(40):
        optimizer = first if step < 3 else second
        loss_of(model).backward()
        nn.utils.clip_grad_norm_(model.parameters() if clips_all else optimizer.param_groups[0]["params"], 1.0)
        optimizer.step()
        optimizer.zero_grad()


def test_gradients_that_are_not_applied_fill_the_limit() -> None:
    (found,) = matches_after("GT214", lambda: in_two_phases(clips_all=True))
    assert found.paths == ("2.weight", "2.bias")
    assert (found.evidence["tensors"], found.evidence["frozen"]) == (2, 0)
    assert matches_after("GT214", lambda: in_two_phases(clips_all=False)) == []


def test_weights_that_the_script_moves_itself() -> None:
    """While the optimizer of another model is in use."""

    def train() -> None:
        model, other = net(), net()
        optimizer = torch.optim.SGD(other.parameters(), lr=1e-3)
        for _ in range(STEPS):
            loss_of(other).backward()
            optimizer.step()
            optimizer.zero_grad()
            loss_of(model).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for each in model.parameters():
                if each.grad is not None:
                    each.data.add_(each.grad, alpha=-0.1)
            model.zero_grad()

    assert matches_after("GT214", train) == []
