"""The order of calls, counted: what runs between two steps of a loop, against arithmetic, with and without the buffer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.protocol.call_order import AccumulationWindow, CallOrderMeasured

STEPS = 40
EVERY_STEP, FEW_STEPS = 100.0, 0.0
"""Budgets: every step is sampled, so that nothing is buffered; only the first ones are."""

Step = Callable[[nn.Module, torch.optim.Optimizer], None]


def backward(model: nn.Module) -> None:
    model(torch.randn(2, 4)).square().mean().backward()


def plain(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    backward(model)
    optimizer.step()


def cleared_after(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    backward(model)
    optimizer.step()
    optimizer.zero_grad()


def never_cleared(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    backward(model)
    optimizer.step()


def cleared_before_the_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    backward(model)
    optimizer.zero_grad()
    optimizer.step()


def accumulated(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(4):
        backward(model)
    optimizer.step()
    optimizer.zero_grad()


def cleared_four_times(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(4):
        optimizer.zero_grad()
        backward(model)
    optimizer.step()


def sharpness_aware(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    backward(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.01
    model.zero_grad()
    backward(model)
    optimizer.step()


def sharpness_aware_by_data(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write to `.data`, which has a version counter of its own."""
    optimizer.zero_grad()
    backward(model)
    for parameter in model.parameters():
        parameter.data += 0.01
    model.zero_grad()
    backward(model)
    optimizer.step()


def measure(step: Step, budget: float) -> CallOrderMeasured:
    """Return the last event of a run of `STEPS` such steps."""
    torch.manual_seed(0)
    with watched(budget=budget) as seen:
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        for _ in range(STEPS):
            step(model, optimizer)
    return seen.all(CallOrderMeasured)[-1]


def window(applied: int, cleared: int, forwards: int, *, carries: bool = False, first: int = 1) -> AccumulationWindow:
    return AccumulationWindow(0, applied, cleared, forwards, 0, carries, STEPS + 1 - first, first, STEPS)


@pytest.mark.parametrize("budget", [EVERY_STEP, FEW_STEPS], ids=["not buffered", "buffered"])
@pytest.mark.parametrize(
    ("step", "windows", "clears"),
    [
        (plain, [window(1, 0, 1)], 1),
        (cleared_after, [window(1, 0, 1)], 1),
        (cleared_before_the_step, [window(0, 1, 1)], 1),
        (accumulated, [window(4, 0, 4)], 1),
        (cleared_four_times, [window(1, 3, 4)], 4),
        (sharpness_aware, [window(1, 1, 2)], 2),
        (
            never_cleared,
            [AccumulationWindow(0, 1, 0, 1, 0, False, 1, 1, 1), window(1, 0, 1, carries=True, first=2)],
            0,
        ),
    ],
)
def test_every_step_is_counted(step: Step, windows: list[AccumulationWindow], clears: int, budget: float) -> None:
    measured = measure(step, budget)
    assert list(measured.windows) == windows
    assert measured.clears == clears * STEPS
    assert measured.first_windows == ((0, windows[0].applied),) * STEPS


def test_what_is_compared_in_the_first_steps(set_sample_cost: Callable[[float], None]) -> None:
    set_sample_cost(0.001)
    kept, cleared, used = (measure(step, FEW_STEPS) for step in (never_cleared, plain, sharpness_aware))
    ((_, times_kept, times_not),) = kept.gradients_compared
    assert times_kept > 1
    assert times_not == 0
    ((_, times_kept, times_not),) = cleared.gradients_compared
    assert times_kept == 0
    assert times_not > 1
    assert used.gradients_used > 1
    assert used.gradients_unused == 0
    assert measure(cleared_four_times, FEW_STEPS).gradients_unused > 1


def test_writes_without_version_are_seen_in_values(set_sample_cost: Callable[[float], None]) -> None:
    """Values are read only once a script has cleared gradients between a backward and the step."""
    set_sample_cost(0.001)
    used = measure(sharpness_aware_by_data, FEW_STEPS)
    assert used.gradients_used > 1
    assert used.gradients_unused == 1
    never = measure(cleared_four_times, FEW_STEPS)
    assert never.gradients_used == 0


def test_two_models_take_turns() -> None:
    """The critic's step has two backwards and three forwards, one of them of the generator; the generator's has one of each."""
    with watched(budget=EVERY_STEP) as seen:
        generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
        of_critic = torch.optim.SGD(critic.parameters(), lr=0.01)
        of_generator = torch.optim.SGD(generator.parameters(), lr=0.01)
        for _ in range(STEPS):
            generated = generator(torch.randn(2, 4))
            of_critic.zero_grad()
            critic(torch.randn(2, 4)).mean().backward()
            critic(generated.detach()).mean().backward()
            of_critic.step()
            of_generator.zero_grad()
            critic(generated).mean().backward()
            of_generator.step()
    windows = seen.all(CallOrderMeasured)[-1].windows
    found = {
        (each.applied, each.cleared, each.forwards, each.count, each.first_step, each.last_step) for each in windows
    }
    assert found == {(2, 0, 3, STEPS, 1, 2 * STEPS - 1), (1, 0, 1, STEPS, 2, 2 * STEPS)}
    assert {each.optimizer for each in windows} == {0, 1}


def test_zero_grad_of_one_model_spares_other() -> None:
    with watched(budget=EVERY_STEP) as seen:
        generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
        of_critic = torch.optim.SGD(critic.parameters(), lr=0.01)
        of_generator = torch.optim.SGD(generator.parameters(), lr=0.01)
        for _ in range(STEPS):
            generated = generator(torch.randn(2, 4))
            critic(generated.detach()).mean().backward()
            of_critic.step()
            generator.zero_grad()
            critic(generated).mean().backward()
            of_generator.step()
    measured = seen.all(CallOrderMeasured)[-1]
    carrying = {each.optimizer: each.count for each in measured.windows if each.carries}
    assert carrying == {0: STEPS - 1}
    compared = {index: (kept, cleared) for index, kept, cleared in measured.gradients_compared}
    assert compared[0][0] > 1
    assert compared[0][1] == compared[1][0] == 0
    assert compared[1][1] > 1


@pytest.mark.parametrize("foreach", [False, True])
def test_clipping_by_value_hides_no_gradient(foreach: bool) -> None:
    with watched() as seen:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(6):
            model(torch.randn(2, 4)).square().mean().backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.5, foreach=foreach)
            optimizer.step()
    ((_, kept, cleared),) = seen.all(CallOrderMeasured)[-1].gradients_compared
    assert kept > 1
    assert cleared == 0


@pytest.mark.parametrize("way", ["data", "tensor", "none"])
def test_a_loop_that_clears_by_itself(way: str) -> None:
    with watched() as seen:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(6):
            for parameter in model.parameters():
                if way == "none" or parameter.grad is None:
                    parameter.grad = None
                else:
                    (parameter.grad.data if way == "data" else parameter.grad).zero_()
            model(torch.randn(2, 4)).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
    ((_, kept, cleared),) = seen.all(CallOrderMeasured)[-1].gradients_compared
    assert kept == 0
    assert cleared > 1


def test_a_closure_has_no_windows_of_its_own() -> None:
    """The optimizer calls it as often as it likes."""
    with watched() as seen:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = model(torch.ones(2, 4)).square().mean()
            loss.backward()
            return loss

        for _ in range(5):
            optimizer.step(closure)
    windows = seen.all(CallOrderMeasured)[-1].windows
    assert sum(each.count for each in windows) == 5
    assert {(each.applied, each.cleared) for each in windows} == {(0, 0)}


@pytest.mark.parametrize("by_value", [False, True])
def test_clipping_of_scaled_gradients_is_counted(by_value: bool) -> None:
    with watched() as seen:
        model = nn.Linear(4, 1)
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.01), torch.amp.GradScaler("cpu", init_scale=8.0)
        for _ in range(4):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(2, 4)).square().mean()).backward()
            if by_value:
                nn.utils.clip_grad_value_(model.parameters(), clip_value=0.5)
            else:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    measured = seen.all(CallOrderMeasured)[-1]
    assert (measured.clips, measured.scaled_clips) == (4, 4)


def test_a_skipped_step_ends_the_window() -> None:
    with watched() as seen:
        model = nn.Linear(4, 1)
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.01), torch.amp.GradScaler("cpu", init_scale=8.0)
        for step in range(6):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4)).square().mean() * (float("inf") if step in (1, 4, 5) else 1.0)
            scaler.scale(loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    measured = seen.all(CallOrderMeasured)[-1]
    assert [(each.applied, each.cleared, each.count) for each in measured.windows] == [(1, 0, 3)]
    assert measured.skips_in_a_row == 2
    assert (measured.clips, measured.scaled_clips) == (6, 6)


def test_eval_training_counts_since_train_call() -> None:
    def step() -> None:
        backward(model)
        optimizer.step()
        optimizer.zero_grad()

    with watched() as seen:
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for mode in (True, False, True, False):
            model.train(mode)
            for _ in range(5):
                step()
    (found,) = seen.all(CallOrderMeasured)[-1].eval_mode
    assert (found.since_step, found.last_step, found.calls, found.trained_before) == (16, 20, 5, True)


def of_numbers(model: nn.Module) -> Tensor:
    return torch.tensor([each.item() for each in model(torch.randn(2, 4)).flatten()], requires_grad=True).mean()


def through_the_parameters(model: nn.Module) -> Tensor:
    return of_numbers(model) + model(torch.randn(2, 4)).mean()


def of_a_tensor_that_the_optimizer_has(model: nn.Module) -> Tensor:
    return free[0].square().sum() + model(torch.randn(2, 4)).detach().mean()


free: list[Tensor] = []


@pytest.mark.parametrize(
    ("loss", "expected"),
    [(of_numbers, 5), (through_the_parameters, 0), (of_a_tensor_that_the_optimizer_has, 0)],
)
def test_backwards_that_lead_to_no_parameter(loss: Callable[[nn.Module], Tensor], expected: int) -> None:
    model = nn.Linear(4, 2)
    free[:] = [torch.ones(3, requires_grad=True)]
    with watched(budget=EVERY_STEP) as seen:
        optimizer = torch.optim.SGD([*model.parameters(), *free], lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()
    assert seen.all(CallOrderMeasured)[-1].backwards_to_others == expected
