"""The operations of a forward on a device whose memory cannot be profiled: the same record as beside a profile."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from zoo import SPECIMENS, Specimen

from gradtui.probe.memory import PhaseMemory, memory_profile_schedule, step_recorder
from gradtui.probe.sampling import OperationCount
from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable, TraceStep

STEPS = 5


def treat_as_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat the CPU as a device without a memory profile."""
    monkeypatch.setattr(PhaseMemory, "device_type", property(lambda _: "cuda"))


@pytest.fixture(autouse=True)
def _due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_profile_schedule, "_FIRST_SHARE", 1e9)
    monkeypatch.setattr(memory_profile_schedule, "_RENEWAL_SHARE", 1e9)


def train(specimen: Specimen, micro_steps: int = 1, *, freeze_in: int = -1) -> tuple[Watched, list[Tensor]]:
    """Train, and return what was seen and the parameters at the end."""
    model = specimen.model
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], 0.01)
    with watched() as run:
        for step in run.steps(
            STEPS, {freeze_in: lambda number: SetTrainable(number, run.state.tree.parameters[0].path, False)}
        ):
            optimizer.zero_grad()
            for part in range(micro_steps):
                specimen.loss(model(*specimen.batch(step + part))).backward()
            optimizer.step()
    assert _get_current_dispatch_mode() is None
    return run, [each.detach().clone() for each in model.parameters()]


def specimen_of(name: str) -> Specimen:
    torch.manual_seed(0)
    return SPECIMENS[name]()


def record_of(run: Watched) -> ev.OperationsRecorded:
    record = run.all(ev.OperationsRecorded)[0]
    assert record.operations, record.missing
    return replace(record, at=0.0, step=0, listing=None)


@pytest.mark.parametrize("name", ["tied_gpt", "frozen_encoder_with_prompt", "conv_batchnorm", "lora", "checkpointed"])
@pytest.mark.parametrize("micro_steps", [1, 2])
def test_the_record_is_that_of_a_profiled_step(name: str, micro_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    profiled, parameters = train(specimen_of(name), micro_steps)
    treat_as_a_device(monkeypatch)
    recorded, again = train(specimen_of(name), micro_steps)
    assert profiled.all(ev.StepMemoryProfiled)
    assert not recorded.all(ev.StepMemoryProfiled)
    assert record_of(recorded) == record_of(profiled)
    assert all(map(torch.equal, parameters, again))


def test_steps_are_recorded_again_after_trained_set_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    treat_as_a_device(monkeypatch)
    assert len(train(specimen_of("mlp"))[0].all(ev.OperationsRecorded)) == 1
    assert len(train(specimen_of("mlp"), freeze_in=3)[0].all(ev.OperationsRecorded)) == 2


def test_record_can_be_requested_and_profile_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    treat_as_a_device(monkeypatch)
    monkeypatch.setattr(memory_profile_schedule, "_FIRST_SHARE", 0.0)
    specimen = specimen_of("mlp")
    optimizer = torch.optim.SGD(specimen.model.parameters(), 0.01)
    with watched() as run:
        for step in run.steps(STEPS, {2: TraceStep, 3: lambda number: TraceStep(number, operations=True)}):
            optimizer.zero_grad()
            specimen.loss(specimen.model(*specimen.batch(step))).backward()
            optimizer.step()
    assert [each.step for each in run.all(ev.OperationsRecorded)] == [4]
    (refused,) = run.all(ev.CommandRejected)
    assert "history" in refused.reason


class ModesSeen(nn.Module):
    """Notes the dispatch mode in force in each forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.modes: list[TorchDispatchMode | None] = []
        self.in_backward: list[TorchDispatchMode | None] = []

    def forward(self, x: Tensor) -> Tensor:
        self.modes.append(_get_current_dispatch_mode())
        y: Tensor = self.linear(x)
        y.register_hook(self.on_gradient)
        return y

    def on_gradient(self, _: Tensor) -> None:
        self.in_backward.append(_get_current_dispatch_mode())


def test_the_mode_is_on_in_forward_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    treat_as_a_device(monkeypatch)
    model = ModesSeen()
    train(Specimen("counted", model, lambda _: (torch.ones(2, 4),), Tensor.sum))
    # Some steps are counted: see `operation_count.py`.
    assert [mode is not None and not isinstance(mode, OperationCount) for mode in model.modes].count(True) == 1
    assert model.in_backward == [None] * STEPS


def test_a_step_that_is_captured_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    treat_as_a_device(monkeypatch)
    monkeypatch.setattr(step_recorder, "is_capturing", lambda: True)
    model = ModesSeen()
    run, _ = train(Specimen("counted", model, lambda _: (torch.ones(2, 4),), Tensor.sum))
    assert model.modes == [None] * STEPS
    assert {each.missing for each in run.all(ev.OperationsRecorded)} == {"the step is captured in a CUDA graph"}
