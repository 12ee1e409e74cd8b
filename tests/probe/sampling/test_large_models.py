"""When a large model is sampled for the first time, and what is known of it until then."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import torch
from helpers.watched import ScriptedCommands, Watched, watched
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gradtui.probe.model import model_registry
from gradtui.probe.runtime import RunStopped, StepTime
from gradtui.probe.runtime.overhead import OverheadMeter
from gradtui.probe.sampling import first_sample
from gradtui.probe.sampling.first_sample import Extent, FirstSample
from gradtui.protocol.commands import Pause, PauseAtBadStep, Resume, RunSteps, SetTrainable, Watch
from gradtui.protocol.events import (
    GradientHistogramsMeasured,
    NonFiniteFound,
    SavedBytesMeasured,
    StepMemoryProfiled,
)

if TYPE_CHECKING:
    from gradtui.probe.model.model_registry import ModelRegistry
    from gradtui.probe.runtime import HookSet

LISTING = 1


def extents(
    steps_s: Sequence[float], building_s: float, *, asked_at: int = -1, listed_at: Sequence[int] = (), of_round: int = 1
) -> list[Extent]:
    """What `FirstSample` says of each step. They take `steps_s`, the first one 9 s more: it includes the setup."""
    tree = SimpleNamespace(listing=LISTING)
    view = SimpleNamespace(tree=tree, building_s=building_s, is_large=building_s > 0.1, round_length=of_round)
    cost = OverheadMeter(cast("HookSet", SimpleNamespace(own_ns=0, calibrate=lambda: None)), 0)
    first = FirstSample(cast("ModelRegistry", view), cost.step_time, lambda executed: None)
    found: list[Extent] = []
    now = 9.0
    for executed, seconds in enumerate(steps_s):
        tree.listing += executed in listed_at
        found.append(first.extent(executed, is_requested=executed == asked_at))
        now += seconds
        cost.steps_ended((round(now * 1e9),))
    return found


def test_a_small_model_is_sampled_at_once() -> None:
    assert extents([0.001] * 3, 0.05) == [Extent.WHOLE] * 3


def test_first_samples_cost_twentieth_of_training() -> None:
    found = extents([1.0] * 30, 0.3)
    norms, whole = found.index(Extent.NORMS), found.index(Extent.WHOLE)
    # Norms and states take as long as the listing, 0.3 s, and a whole sample four times as long. The first step does not count.
    assert (norms, whole) == (1 + 6, 1 + 24)
    assert {*found[:norms], *found[norms + 1 : whole]} == {Extent.NOTHING}
    assert {*found[whole:]} == {Extent.WHOLE}


def test_instant_steps_do_not_prolong_wait() -> None:
    """Two optimizers step after one backward: each second step takes a thousandth of the iteration."""
    found = extents([0.999, 0.001] * 30, 0.3, of_round=2)
    # The first step does not count, and 24 s are 48 steps.
    assert found.index(Extent.WHOLE) == 1 + 48


def test_norms_of_each_optimizer_are_measured_waiting() -> None:
    found = extents([0.5] * 60, 0.3, of_round=2)
    assert [step for step, extent in enumerate(found) if extent is Extent.NORMS] == [1 + 12, 1 + 13]


def test_often_relisted_large_model_is_sampled() -> None:
    found = extents([1.0] * 40, 0.3, listed_at=range(2, 40))
    assert found.index(Extent.WHOLE) == 1 + 24


def test_what_the_user_requests_is_not_put_off() -> None:
    assert extents([1.0] * 4, 0.3, asked_at=2) == [Extent.NOTHING, Extent.NOTHING, Extent.WHOLE, Extent.NOTHING]


def test_training_time_leaves_out_first_step_and_pauses() -> None:
    hooks = SimpleNamespace(own_ns=0, calibrate=lambda: None)
    cost = OverheadMeter(cast("HookSet", hooks), 0)
    seconds = [5, *range(6, 60)]
    cost.steps_ended((seconds[0] * 10**9,))
    cost.steps_ended([each * 10**9 for each in seconds[1:]])
    cost.pause_began(60 * 10**9)
    cost.pause_ended(70 * 10**9)
    cost.steps_ended((71 * 10**9,))
    assert cost.step_time.total == pytest.approx(59 - 5 + 2)
    assert isinstance(cost.step_time, StepTime)


@pytest.fixture
def forever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each model is large, and too large for a sample within any training time."""
    monkeypatch.setattr(model_registry, "_LARGE_S", 0.0)
    monkeypatch.setattr(first_sample, "_SHARE", 0.0)


class Model(nn.Module):
    """Parameters of each state that norms show. `left` is in no optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.ones(2))
        self.zero = nn.Parameter(torch.ones(2))
        self.unused = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.left = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.a + self.zero * 0 + self.frozen + self.left)


class Loop:
    """A training loop of one model and one optimizer."""

    def __init__(self, *, clears_after: bool = False) -> None:
        self.model = Model()
        self.optimizer = torch.optim.SGD([p for n, p in self.model.named_parameters() if n != "left"], lr=0.1)
        self._clears_after = clears_after

    def step(self, x: float = 1.0) -> None:
        if not self._clears_after:
            self.optimizer.zero_grad()
        self.model(torch.tensor([x, x])).sum().backward()
        self.optimizer.step()
        if self._clears_after:
            self.model.zero_grad()


TRAINABLE = "11101"
STATES = "TZU-O"


def steps_measured(run: Watched) -> list[int]:
    return [step for step, _ in run.totals()]


@pytest.mark.usefixtures("forever", "every_step_is_read")
def test_large_model_shows_training_first_then_everything() -> None:
    with watched(budget=0.01) as run:
        loop = Loop()
        for _ in range(2):
            loop.step()
        tree = run.state.tree
        assert ({*tree.states}, tree.trainable) == ({"-"}, TRAINABLE)
        run.submit(lambda number: SetTrainable(number, "a", trainable=False))
        for _ in range(2):
            loop.step()
        assert run.state.tree.states == "CZUCO"
    # Norms are read from the first step on.
    assert steps_measured(run) == [1, 2, 3, 4]


@pytest.mark.usefixtures("forever")
def test_what_user_freezes_before_first_step_is_sampled() -> None:
    with watched(budget=0.01) as run:
        loop = Loop()
        run.submit(lambda number: SetTrainable(number, "a", trainable=False))
        for _ in range(2):
            loop.step()
        assert run.state.tree.states == "CZUCO"


@pytest.mark.usefixtures("forever")
def test_what_the_script_freezes_meanwhile_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(budget=0.01) as run:
        loop = Loop()
        loop.step()
        loop.model.a.requires_grad_(False)
        loop.step()
        monkeypatch.setattr(run.probe.step_sampler, "_switches_at", 0)
        run.probe.step_sampler.check_requires_grad(run.probe.clock.now())
        assert run.state.tree.trainable == "01101"


@pytest.fixture(params=[1, 1_000], ids=["often", "seldom"])
def interval(request: pytest.FixtureRequest, set_reading_interval: Callable[[int], None]) -> int:
    """The interval between steps whose norms are read: of some large models it is long."""
    set_reading_interval(request.param)
    return int(request.param)


def steps_read(interval: int, last: int) -> list[int]:
    """The steps whose norms are read if those of step `last` are in any case."""
    return [step for step in range(1, last + 1) if step % interval == 0 or step == last]


@pytest.mark.usefixtures("forever")
@pytest.mark.parametrize("leaves", ["detach", "report"])
def test_run_ending_in_wait_states_last_step(leaves: str, interval: int) -> None:
    with watched(budget=0.01) as run:
        loop = Loop()
        for _ in range(5):
            loop.step(3.0)
        if leaves == "report":
            run.probe.report()
            assert run.state.tree.states == STATES
    assert steps_measured(run) == steps_read(interval, 5)
    # Each of the two elements of `a` has the gradient 3.
    assert run.norms()["a"] == pytest.approx(math.sqrt(18))
    assert (run.state.tree.states, run.state.tree.trainable) == (STATES, TRAINABLE)


@pytest.mark.usefixtures("forever")
def test_run_ending_without_gradients_states_what_trains(
    set_reading_interval: Callable[[int], None],
) -> None:
    set_reading_interval(1_000)
    with watched(budget=0.01) as run:
        loop = Loop(clears_after=True)
        for _ in range(5):
            loop.step()
        loop.model.a.requires_grad_(False)
    assert not steps_measured(run)
    assert ({*run.state.tree.states}, run.state.tree.trainable) == ({"-"}, "01101")


@pytest.mark.usefixtures("forever")
def test_last_of_requested_steps_shows_norms_and_states(interval: int) -> None:
    with watched(budget=0.01, stop_after=3) as run:
        loop = Loop(clears_after=True)
        loop.step()
        loop.step()
        with pytest.raises(RunStopped):
            loop.step()
    assert steps_measured(run) == steps_read(interval, 3)
    assert run.state.tree.states == STATES


@pytest.mark.usefixtures("forever")
def test_last_step_of_epoch_shows_norms_and_states(interval: int) -> None:
    """It may be that of the run, and the script clears the gradients after it."""
    with watched(budget=0.01) as run:
        loop = Loop(clears_after=True)
        for (x,) in DataLoader(TensorDataset(torch.ones(5))):
            loop.step(x.item())
    assert steps_measured(run) == steps_read(interval, 5)
    assert run.state.tree.states == STATES


@pytest.mark.usefixtures("forever")
def test_steps_before_a_hold_show_norms_and_states(interval: int) -> None:
    commands = ScriptedCommands([lambda q: q.submit(lambda number: RunSteps(number, 1)), lambda q: q.submit(Resume)])
    with watched(budget=0.01, commands=commands) as run:
        loop = Loop(clears_after=True)
        loop.step()
        run.submit(Pause)
        loop.step()
        loop.step()
        assert commands.waits == 2
        assert steps_measured(run) == steps_read(interval, 2)
        assert run.state.tree.states == STATES


@pytest.mark.usefixtures("forever")
def test_run_without_optimizer_states_its_last_step() -> None:
    with watched(budget=0.01) as run:
        model = nn.Linear(1, 1)
        for _ in range(3):
            model.zero_grad()
            model(torch.ones(1, 1)).sum().backward()
            with torch.no_grad():
                for each in model.parameters():
                    each -= 0.1 * cast("torch.Tensor", each.grad)
    assert steps_measured(run)[-1] == 3
    assert run.state.tree.states == "TT"


def test_both_models_show_states_while_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_registry, "_LARGE_S", 0.0)
    monkeypatch.setattr(first_sample, "_NORMS_S", 0.0)
    monkeypatch.setattr(first_sample, "_WHOLE_S", math.inf)
    with watched(budget=0.01) as run:
        models = [nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)]
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in models]
        for _ in range(3):
            for model, optimizer in zip(models, optimizers):
                model(torch.ones(1, 1)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        assert run.state.tree.states == "TT"
        assert not run.all(SavedBytesMeasured)


@pytest.mark.usefixtures("forever")
def test_gradient_that_user_watches_is_measured_at_once() -> None:
    with watched(budget=0.01) as run:
        loop = Loop()
        loop.step()
        run.submit(lambda number: Watch(number, ("a",)))
        for _ in range(3):
            loop.step()
        assert [event.step for event in run.all(GradientHistogramsMeasured)] == [2]


@pytest.mark.usefixtures("forever")
def test_pausing_run_finds_nan_in_its_step() -> None:
    commands = ScriptedCommands([lambda q: q.submit(Resume)])
    with watched(budget=0.01, commands=commands) as run:
        loop = Loop()
        run.submit(lambda number: PauseAtBadStep(number, on=True))
        for step in range(1, 7):
            loop.step(math.nan if step == 4 else 1.0)
        assert [(event.step, event.exact, event.last_finite) for event in run.all(NonFiniteFound)] == [(4, True, 3)]
        assert commands.waits == 1


def test_no_model_is_large_because_machine_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waits = model_registry.perf_counter_ns, itertools.count(step=10**9)
    monkeypatch.setattr(model_registry, "perf_counter_ns", lambda: clock() + next(waits))
    with watched() as run:
        loop = Loop()
        for _ in range(4):
            loop.step()
        assert run.all(StepMemoryProfiled)


def test_no_profile_in_first_step_of_large_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with watched() as run:
        loop = Loop()
        for _ in range(4):
            loop.step()
        profiled = len(run.all(StepMemoryProfiled))
        assert profiled
        monkeypatch.setattr(model_registry, "_LARGE_S", 0.0)
        monkeypatch.setattr(first_sample, "_SHARE", 0.0)
        loop.model.more = nn.Linear(1, 1)
        for _ in range(4):
            loop.step()
        assert len(run.all(StepMemoryProfiled)) == profiled
