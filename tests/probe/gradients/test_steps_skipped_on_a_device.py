"""Steps that a fused optimizer skips on a device, which says so later. With stand-ins: the host knows at once."""

from __future__ import annotations

import pytest
import torch
from helpers.fake_cuda_graphs import FakeCuda
from helpers.watched import Watched, watched
from torch import nn

from gradtui.probe.gradients import grad_scalers
from gradtui.protocol.events import GradientsMeasured

X = torch.linspace(-1, 1, 12).view(3, 4)


class NotRead(torch.Tensor):
    """As a tensor on a device: whoever reads its value waits."""

    device = torch.device("cuda", 0)  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise AssertionError("this would wait for the device")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    found_inf = grad_scalers.found_inf

    def on_device(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
        found = found_inf(optimizer)
        return found if found is None else found.as_subclass(NotRead)

    monkeypatch.setattr(grad_scalers, "found_inf", on_device)
    monkeypatch.setattr(grad_scalers, "is_on_cuda", lambda tensor: True)
    return FakeCuda(monkeypatch)


class Training:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 2)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)

    def step(self, *, overflows: bool = False) -> None:
        self.optimizer.zero_grad()
        loss = self.model(X).square().mean() * (float("inf") if overflows else 1.0)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()


def counts(seen: Watched) -> tuple[int, int, list[int], int]:
    """(step, skipped steps, steps of each optimizer, micro-steps)."""
    return seen.state.step, seen.state.skipped_steps, seen.state.optimizer_steps, seen.state.micro_steps


@pytest.mark.parametrize("behind", [False, True], ids=["read at the next step", "read at the end"])
@pytest.mark.parametrize("overflows", [[1], [0, 4], [2, 3], []], ids=str)
def test_step_skipped_on_device_is_counted(cuda: FakeCuda, overflows: list[int], behind: bool) -> None:
    with watched() as seen:
        training = Training()
        cuda.is_finished = not behind
        for step in range(5):
            training.step(overflows=step in overflows)
        cuda.is_finished = True
    executed = 5 - len(overflows)
    assert counts(seen) == (executed, len(overflows), [executed], 5)


def test_later_steps_have_numbers_if_device_answers(cuda: FakeCuda) -> None:
    with watched() as seen:
        training = Training()
        for step in range(4):
            training.step(overflows=step == 1)
        assert seen.probe.counter.steps == 3 + 1 - 1
    told = [event.step for event in seen.all(GradientsMeasured) if event.total is not None]
    # As behind a scaler that skips on the host: the skipped step has the number of the next executed one.
    assert told == [1, 2, 2, 3]


def test_steps_skipped_since_newest_executed_one_are_known(cuda: FakeCuda) -> None:
    with watched() as seen:
        training = Training()
        training.step()
        training.step(overflows=True)
        training.step(overflows=True)
        training.model(X)
        assert (seen.probe.counter.steps, seen.probe.counter.left_out) == (1, 2)
        training.step()
        training.model(X)
        assert (seen.probe.counter.steps, seen.probe.counter.left_out) == (2, 0)


def test_answers_under_way_are_bounded(cuda: FakeCuda) -> None:
    with watched() as seen:
        training = Training()
        cuda.is_finished = False
        for _ in range(grad_scalers._MAX_UNDER_WAY + 5):
            training.step()
        assert len(seen.probe.scalers.under_way) == grad_scalers._MAX_UNDER_WAY
        cuda.is_finished = True


def test_nothing_is_read_where_copies_would_wait(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grad_scalers, "is_on_cuda", lambda tensor: False)
    with watched() as seen:
        training = Training()
        training.step()
        training.step(overflows=True)
    assert counts(seen) == (2, 0, [2], 2)


@pytest.mark.parametrize("behind", [False, True], ids=["read at the next step", "read at the end"])
def test_states_of_skipped_device_step_say_so(cuda: FakeCuda, behind: bool) -> None:
    with watched() as seen:
        training = Training()
        training.step()
        cuda.is_finished = not behind
        training.step(overflows=True)
        if not behind:
            training.model(X)
            assert set(seen.letters().values()) == {"S"}
            training.step()
            assert set(seen.letters().values()) == {"T"}
            training.step(overflows=True)
        cuda.is_finished = True
    assert set(seen.letters().values()) == {"S"}


class Answer:
    """What a device copies to the host, there once the test says so."""

    made: list[Answer]

    def __init__(self, values: torch.Tensor) -> None:
        self._values = [float(each) for each in values.as_subclass(torch.Tensor)]
        self.is_there = False
        self.made.append(self)

    def values(self) -> list[float]:
        return self._values

    def wait(self) -> None:
        for each in self.made:
            each.is_there = True


def test_answer_corrects_states_of_its_own_step_only(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    Answer.made = []
    monkeypatch.setattr(grad_scalers, "HostCopy", Answer)
    with watched() as seen:
        training = Training()
        training.step(overflows=True)
        training.step(overflows=True)
        first, second = Answer.made
        first.is_there = True
        training.step()
        assert set(seen.letters().values()) == {"T"}
        second.is_there = True
        seen.probe.scalers.poll()
        assert set(seen.letters().values()) == {"T"}, "the second step, not the third, was skipped"
        Answer.made[2].is_there = True
        training.step(overflows=True)
        Answer.made[3].is_there = True
        seen.probe.scalers.poll()
        assert set(seen.letters().values()) == {"S"}
