"""Since when the settings of an optimizer are what they are: the step, or two steps between which they changed."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

import pytest
import torch
from helpers.watched import Watched, watched
from torch import nn

from gradtui.probe.steps import hook_buffer
from gradtui.protocol.events import GroupsRead
from gradtui.run.state.run_state import RunState

OPTIMIZERS: dict[str, tuple[Callable[[nn.Module], torch.optim.Optimizer], dict[str, object]]] = {
    "sgd": (
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True),
        {"momentum": 0.9, "nesterov": True, "dampening": 0.0},
    ),
    "adam": (
        lambda model: torch.optim.Adam(model.parameters(), lr=0.1, betas=(0.8, 0.99), amsgrad=True),
        {"betas": (0.8, 0.99), "eps": 1e-8, "amsgrad": True},
    ),
}


def steps(seen: Watched, count: int, each: Callable[[int, torch.optim.Optimizer], object]) -> None:
    """So many steps; `each` is called after each one, as a scheduler is."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias], "lr": 0.5}], lr=0.1)
    for number in range(1, count + 1):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        each(number, optimizer)


def since(state: RunState) -> list[tuple[int, int]]:
    return [state.groups_since[0, group] for group in range(2)]


def to_new_rate(number: int, optimizer: torch.optim.Optimizer) -> None:
    if number == 20:
        optimizer.param_groups[0]["lr"] = 0.02


def test_changed_rate_is_known_at_seen_step() -> None:
    with watched() as seen:
        steps(seen, 30, to_new_rate)
    assert [event.step for event in seen.all(GroupsRead)] == [1, 21]
    assert since(seen.state) == [(21, 21), (1, 1)], "of the other group it is as it was"


def test_rate_changed_between_seen_steps_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("_FLUSH_NS", "_FLUSH_WITHIN_NS"):
        monkeypatch.setattr(hook_buffer, name, 10**15)
    with watched(budget=1e-9) as seen:
        monkeypatch.setattr(seen.probe.step_sampler._cadence, "_warmup", 4)

        def each(number: int, optimizer: torch.optim.Optimizer) -> None:
            to_new_rate(number, optimizer)
            if number == 25:
                # As five times a second.
                seen.probe.buffer.flush(perf_counter_ns())

        steps(seen, 30, each)
    first, last = since(seen.state)[0]
    assert first <= 21 <= last == 25
    assert seen.state.groups is not None
    assert seen.state.groups.optimizers[0][0].learning_rate == 0.02


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> Callable[[Watched], None]:
    """Has steps marked only, from the fifth on."""
    for name in ("_FLUSH_NS", "_FLUSH_WITHIN_NS"):
        monkeypatch.setattr(hook_buffer, name, 10**15)

    def set_up(seen: Watched) -> None:
        monkeypatch.setattr(seen.probe.step_sampler._cadence, "_warmup", 4)

    return set_up


def test_rate_after_evaluation_is_known_at_step(seldom: Callable[[Watched], None]) -> None:
    other = nn.Linear(3, 2).eval()

    def each(number: int, optimizer: torch.optim.Optimizer) -> None:
        if number == 20:
            with torch.no_grad():
                other(torch.ones(1, 3))
        to_new_rate(number, optimizer)

    with watched(budget=1e-9) as seen:
        seldom(seen)
        steps(seen, 20, each)
        assert seen.probe.view.groups._rates_read == 20


def test_added_group_is_new_since_last_reading(seldom: Callable[[Watched], None]) -> None:
    extra = nn.Parameter(torch.ones(1))
    kept: list[torch.optim.Optimizer] = []

    def each(number: int, optimizer: torch.optim.Optimizer) -> None:
        kept.append(optimizer)
        if number == 17:
            seen.probe.buffer.flush(perf_counter_ns())
        if number == 20:
            optimizer.add_param_group({"params": [extra], "lr": 0.25})

    with watched(budget=1e-9) as seen:
        seldom(seen)
        steps(seen, 20, each)
        seen.probe.report()
        first, last = seen.state.groups_since[0, 2]
    # The rates were read as step 17 ended, and there was no third group.
    assert (first, last) == (18, 21)
    assert since(seen.state) == [(1, 1), (1, 1)]


def test_change_after_last_step_is_of_next() -> None:
    kept: list[torch.optim.Optimizer] = []
    with watched() as seen:
        steps(seen, 20, lambda number, optimizer: (to_new_rate(number, optimizer), kept.append(optimizer)))
    assert since(seen.state)[0] == (21, 21)


def test_gone_optimizer_keeps_settings_at_end() -> None:
    with watched() as seen:
        steps(seen, 5, to_new_rate)
    assert seen.state.groups is not None
    assert [each.learning_rate for each in seen.state.groups.optimizers[0]] == [0.1, 0.5]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_setting_that_the_optimizer_has_is_told(name: str) -> None:
    make, expected = OPTIMIZERS[name]
    model = nn.Linear(3, 2)
    with watched() as seen:
        optimizer = make(model)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
    assert seen.state.groups is not None
    further = dict(seen.state.groups.optimizers[0][0].further)
    assert {key: further[key] for key in expected} == expected
    assert not {"lr", "params", "foreach", "fused", "capturable"} & set(further)


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters")
@pytest.mark.parametrize("foreach", [False, True])
def test_a_parameter_that_is_listed_twice_counts_once(foreach: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    with watched() as seen:
        optimizer = torch.optim.Adam([*model.parameters(), *model[0].parameters()], lr=0.01, foreach=foreach)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 3)).square().mean().backward()
            total = torch.stack([each.grad.norm() for each in model.parameters() if each.grad is not None]).norm()
            optimizer.step()
    (info,) = seen.state.optimizers
    assert (sorted(info.parameters), info.unknown_parameters, len(info.group_of)) == ([0, 1, 2, 3], 0, 4)
    assert seen.state.gradient_norm.last == pytest.approx(total.item(), rel=1e-5)
