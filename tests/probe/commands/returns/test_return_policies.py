"""Return policies: a fault is answered with a return to a state from before it, and a healthy run is left alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from helpers.examples import combinations
from helpers.faulty_runs import (
    BATCH,
    FAULTS,
    HEALTHY,
    STEPS,
    Accumulated,
    BadGradient,
    BadSample,
    BadWeight,
    ExplodingRate,
    Outlier,
    Samples,
    Scaled,
    Training,
)
from helpers.training import square_step
from helpers.watched import UNLIMITED, Watched, watched
from torch import Tensor, nn
from torch.utils.data import DataLoader

from gradtui.probe.commands.returns import finite_states, return_policies, state_keeping
from gradtui.probe.gradients import grad_norms
from gradtui.probe.runtime import ranks
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.records.export import schedule_file
from gradtui.records.export.schedule_file import schedule_text
from gradtui.run.text.ending import closing_lines, end_rows
from gradtui.run.text.kept_states import kept_rows
from gradtui.run.text.return_policies import policy_lines
from gradtui.runner.plain import reported


@pytest.fixture
def dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a finite state be kept as often as it may be: after each step that was fine."""
    monkeypatch.setattr(finite_states, "_SHARE", 0)
    monkeypatch.setattr(finite_states, "_LEAST_NS", 0)
    monkeypatch.setattr(finite_states, "_OF_RUN", 1 << 62)


T = TypeVar("T", bound=Training)


def trained(
    kind: Callable[[int], T], seed: int, *, nan: int = 3, spike: int = 3, budget: float = 0.01
) -> tuple[T, Watched]:
    with watched(budget=budget, return_at_nan=nan, return_at_spike=spike) as seen:
        run = kind(seed)
        run.run()
    return run, seen


def returns(seen: Watched) -> list[ev.ReturnedToState]:
    return seen.all(ev.ReturnedToState)


def ended(seen: Watched) -> list[str]:
    return [each.reason for each in seen.all(ev.ReturnsEnded)]


@pytest.mark.usefixtures("dense")
@pytest.mark.parametrize(("kind", "budget"), combinations([BadGradient, BadWeight, BadSample], [UNLIMITED, 0.01]))
def test_nan_returns_to_step_before_it(kind: type[Training], budget: float) -> None:
    run, seen = trained(kind, 1, budget=budget)
    (back,) = returns(seen)
    # A weight that the script spoils after a step is found at the boundary after it, or in the next step.
    assert back.step in (run.at, run.at + 1)
    assert run.at - 3 <= back.to_step < run.at
    assert not back.differing
    assert run.is_finite
    assert ended(seen) == []
    assert all(map(math.isfinite, run.losses[back.step :]))


@pytest.mark.usefixtures("dense")
def test_bad_batch_is_named_and_loader_goes_on() -> None:
    run, seen = trained(BadSample, 2)
    (back,) = returns(seen)
    first = (run.at - 1) * BATCH
    samples = ", ".join(map(str, range(first, first + BATCH)))
    place = f"batch {run.at} of {STEPS} of epoch 1: samples {samples}"
    assert back.why == f"NaN in the loss of step {run.at} ({place}), return 1 of 3"
    assert len(run.losses) == STEPS
    assert [math.isnan(loss) for loss in run.losses].count(True) == 1
    (line,) = [line for line in reported(seen.state.log) if "returned" in line]
    assert line.startswith(f"step {run.at}: returned to step {back.to_step}: {back.why}; ")
    assert [line.endswith(back.why) for line in policy_lines(seen.state)] == [True]


@pytest.mark.usefixtures("dense")
def test_sample_that_all_bad_batches_have_is_named() -> None:
    torch.manual_seed(0)
    data = Samples(0, bad=77)
    with watched(budget=0.01, return_at_nan=2) as seen:
        model = nn.Linear(6, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(3):
            for x, y in DataLoader(data, batch_size=BATCH, shuffle=True):
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
    first, second, _ = returns(seen)
    named = "; sample 77 is in each of these batches"
    assert named not in first.why
    assert second.why.endswith(named)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no check of what a bad step has done wait because earlier ones took long."""
    monkeypatch.setattr(return_policies, "_FREE_S", math.inf)


def epochs_with_a_bad_sample(batches: int, epochs: int = 50) -> tuple[nn.Module, Watched, list[int]]:
    """Return the model too, and how many returns there were by the end of each epoch."""
    torch.manual_seed(0)
    data = torch.randn(batches, 6)
    data[2] = math.nan
    made = []
    with watched(budget=0.01, return_at_nan=3) as seen:
        model = nn.Linear(6, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(epochs):
            for x in DataLoader(data):  # type: ignore[arg-type]
                square_step(model, optimizer, x)
            made.append(len(returns(seen)))
    return model, seen, made


@pytest.mark.usefixtures("at_once")
def test_one_bad_sample_per_epoch_keeps_policy() -> None:
    model, seen, made = epochs_with_a_bad_sample(24)
    assert made == [*range(1, 51)]
    assert ended(seen) == []
    assert all(bool(each.isfinite().all()) for each in model.parameters())
    # The first of three in a row, each time.
    assert ", return 1 of 3 in a row" in returns(seen)[-1].why
    assert "sample 2 " in returns(seen)[-1].why


@pytest.mark.usefixtures("at_once")
def test_soon_recurring_fault_ends_policy() -> None:
    _, seen, made = epochs_with_a_bad_sample(4)
    (reason,) = ended(seen)
    assert made[-1] == 3
    assert ", after 3 returns; sample 2 " in reason


@pytest.mark.usefixtures("at_once")
def test_so_many_returns_end_policy_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(return_policies, "_MOST_RETURNS", 4)
    _, seen, made = epochs_with_a_bad_sample(24, 6)
    assert made == [1, 2, 3, 4, 4, 4]
    assert len(ended(seen)) == 1


@pytest.mark.usefixtures("dense")
def test_spike_returns_to_state_before_it() -> None:
    run, seen = trained(Outlier, 5)
    (back,) = returns(seen)
    assert back.step == run.at
    assert back.to_step < run.at - 1
    assert back.why.startswith(
        f"loss spike of {run.losses[run.at - 1]:.4g} at step {run.at} (batch {run.at} of {STEPS}"
    )
    assert max(run.losses[run.at :]) < 10
    # Without the policy the outlier stays in the weights and in the optimizer.
    alone = Outlier(5)
    alone.run()
    assert max(alone.losses[run.at :]) > 2 * max(run.losses[run.at :])


@pytest.mark.usefixtures("dense")
def test_exploding_learning_rate_ends_policy_with_its_reason() -> None:
    run, seen = trained(ExplodingRate, 1, spike=0)
    assert len(returns(seen)) == 3
    (reason,) = ended(seen)
    assert "the learning rate is " in reason
    given_up = seen.all(ev.ReturnsEnded)[0]
    assert (given_up.policy, given_up.returns) == ("nan", 3)
    assert any(f"--return-at-nan gives up: {reason}; " in line for line in reported(seen.state.log))
    assert len(run.losses) == STEPS
    assert sum("gives up" in line for line in closing_lines(end_rows(seen.state))) == 1
    # From then on the run costs what it costs without a policy.
    assert not seen.probe.dispatcher.returns.is_on
    assert not seen.probe.norms.needs_every_step


def test_short_run_returns_to_its_beginning() -> None:
    run, seen = trained(BadGradient, 5)
    # The second one was kept after the first step, which has made the state of the optimizer.
    assert [each.to_step for each in returns(seen)] in ([0], [1])
    assert run.is_finite


@pytest.mark.usefixtures("dense")
def test_nan_in_the_first_step_is_taken_back() -> None:
    class AtOnce(BadGradient):
        at = 1

    run, seen = trained(AtOnce, 1)
    assert [(each.step, each.to_step) for each in returns(seen)] == [(1, 0)]
    assert run.is_finite


@pytest.mark.usefixtures("dense")
@pytest.mark.parametrize("kind", [Scaled, Accumulated])
def test_a_skipped_step_is_no_fault(kind: type[Training]) -> None:
    run, seen = trained(kind, 1)
    assert (returns(seen), ended(seen)) == ([], [])
    assert run.is_finite


@pytest.mark.usefixtures("dense")
def test_a_policy_without_a_fault_changes_nothing() -> None:
    def values(nan: int) -> list[float]:
        run, _ = trained(Training, 4, nan=nan, spike=nan)
        return [*run.losses, *(each.detach().sum().item() for each in run.model.parameters())]

    assert values(0) == values(3)


@pytest.mark.usefixtures("dense")
def test_at_most_two_finite_states_are_alive() -> None:
    alive: list[int] = []

    class Looking(BadWeight):
        def before(self, step: int) -> None:
            kept = [*seen.probe.dispatcher.keeping.states]
            alive.append(len(kept))
            tensors = [each for state in kept for tensor in state.copy._tensors for each in tensor._copies]
            assert all(bool(each.isfinite().all()) for each in tensors)

    with watched(budget=0.01, return_at_nan=3) as seen:
        Looking(1).run()
    assert max(alive) == 2
    assert len(seen.all(ev.StateKept)) > STEPS // 2
    assert {each.why for each in seen.all(ev.StateKept)} == {"finite"}
    assert "finite, for a return policy" in kept_rows(seen.state)[0][1]


@pytest.mark.usefixtures("dense")
def test_random_numbers_continue_without_repeating_batches() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    drawn: list[Tensor] = []
    with watched(return_at_nan=1) as seen:
        for step in range(1, 13):
            x = torch.randn(4, 6)
            drawn.append(x)
            optimizer.zero_grad()
            loss = model(x).square().mean() * (math.nan if step == 6 else 1.0)
            loss.backward()
            optimizer.step()
    (back,) = returns(seen)
    assert back.to_step < back.step == 6
    assert len({each.numpy().tobytes() for each in drawn}) == len(drawn)


def test_change_of_user_is_not_undone_by_return() -> None:
    class Frozen(BadGradient):
        def before(self, step: int) -> None:
            if step == self.at - 3:
                seen.submit(lambda number: SetTrainable(number, "0", False))

    with watched(budget=0.01, return_at_nan=3) as seen:
        run = Frozen(3)
        run.run()
    (applied,) = [each for each in seen.all(ev.CommandApplied) if isinstance(each.command, SetTrainable)]
    (back,) = returns(seen)
    # The copies before it are seconds apart: this one was made for the change.
    assert applied.step <= back.to_step < back.step
    assert not next(run.model.parameters()).requires_grad
    assert run.is_finite


@pytest.mark.usefixtures("dense")
def test_buffer_never_finite_does_not_matter() -> None:
    class Masked(BadSample):
        def __init__(self, seed: int) -> None:
            super().__init__(seed)
            self.model.register_buffer("unused", torch.full((2,), math.nan))

    _, seen = trained(Masked, 1)
    assert (len(returns(seen)), ended(seen)) == (1, [])


def test_weights_never_finite_end_policy() -> None:
    class Broken(Training):
        def __init__(self, seed: int) -> None:
            super().__init__(seed)
            with torch.no_grad():
                next(self.model.parameters()).fill_(math.nan)

    _, seen = trained(Broken, 1, spike=0)
    (reason,) = ended(seen)
    assert "step 0" in reason


def test_several_ranks_are_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    _, seen = trained(BadGradient, 1)
    assert returns(seen) == []
    assert [each.policy for each in seen.all(ev.ReturnsEnded)] == ["nan", "spike"]
    assert ["one of 2 ranks" in reason for reason in set(ended(seen))] == [True]


def test_slow_copy_ends_policy_with_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_keeping, "_MAX_S", 1e-9)
    _, seen = trained(Training, 1, spike=0)
    (reason,) = ended(seen)
    assert reason.startswith("a copy of the run takes ")


@pytest.mark.usefixtures("dense")
def test_costly_copies_end_policy_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Crowded(Training):
        def before(self, step: int) -> None:
            if step == 12:
                monkeypatch.setattr(state_keeping, "_MAX_S", 1e-9)

    _, seen = trained(Crowded, 1, spike=0)
    (given_up,) = seen.all(ev.ReturnsEnded)
    assert given_up.step == 13
    assert max(each.step for each in seen.all(ev.StateKept)) == 10


@pytest.mark.usefixtures("dense")
def test_schedule_of_run_makes_same_returns(tmp_path: Path) -> None:
    run, seen = trained(BadSample, 1)
    file = tmp_path / "schedule.toml"
    file.write_text(schedule_text(seen.state, "train.py"), encoding="utf-8")
    with watched(budget=0.01, schedule=schedule_file.load(file)) as replayed:
        again = BadSample(1)
        again.run()
    assert [(each.step, each.to_step) for each in returns(replayed)] == [(e.step, e.to_step) for e in returns(seen)]
    assert all(torch.equal(one, other) for one, other in zip(again.model.parameters(), run.model.parameters()))


@pytest.mark.usefixtures("as_on_a_device")
def test_what_a_device_reports_late_is_answered_then(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(HostCopy):
        """Arrives three steps later, or when it is waited for."""

        now = 0

        def __init__(self, values: Tensor) -> None:
            super().__init__(values.clone())
            self._at = Late.now + 3

        @property
        def is_there(self) -> bool:
            return Late.now >= self._at

        def wait(self) -> None:
            self._at = 0

    class OnDevice(BadGradient):
        def before(self, step: int) -> None:
            Late.now = step

    monkeypatch.setattr(grad_norms, "HostCopy", Late)
    run, seen = trained(OnDevice, 3)
    (back,) = returns(seen)
    assert back.step == run.at + 3
    assert back.to_step < run.at
    # Steps after it were bad too, and have been read since: they are those of before the return.
    assert ended(seen) == []
    assert run.is_finite


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "kind"), combinations(range(10), FAULTS))
def test_faulty_runs_recover_or_end_with_a_reason(
    kind: type[Training], seed: int, request: pytest.FixtureRequest
) -> None:
    if seed % 2:
        request.getfixturevalue("dense")
    run, seen = trained(kind, seed)
    assert returns(seen)
    if kind is ExplodingRate:
        (reason,) = ended(seen)
        assert "the learning rate is " in reason
        return
    assert run.is_finite
    assert ended(seen) == []
    assert max(run.losses[-8:]) < 3 * max(run.losses[:8])


@pytest.mark.slow
@pytest.mark.usefixtures("dense")
@pytest.mark.parametrize(("seed", "kind"), combinations(range(10), HEALTHY))
def test_healthy_runs_are_left_alone(kind: type[Training], seed: int) -> None:
    run, seen = trained(kind, seed)
    assert (returns(seen), ended(seen)) == ([], [])
    assert run.is_finite
