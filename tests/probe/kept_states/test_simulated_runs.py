"""Kept states, return policies, tries and notes of saved trainings on a simulated CUDA device.

Its kernels compute nothing, but copies between host and device copy. So the run computes its losses and its values on the host,
from what the device has, and the check for NaN is made there too.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.simulated import calls
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from gradtui.probe.commands.returns import finite_states, state_keeping
from gradtui.probe.kept_states import CopyDetails, RunCopy
from gradtui.probe.script_calls import saved_contents
from gradtui.protocol import events as ev
from gradtui.protocol.commands import KeepState, ReturnToState, TryChange
from gradtui.run.diagnostics.selection import rule_named

pytestmark = pytest.mark.fake_cuda

STEPS, BATCH, TRIED = 20, 4, 10


class Loss(torch.autograd.Function):
    """Gives the loss a number of the host, as kernels that compute would."""

    @staticmethod
    def forward(context: Any, outputs: Tensor, number: Tensor) -> Tensor:
        context.save_for_backward(outputs)
        return outputs.sum().copy_(number)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        return torch.ones_like(context.saved_tensors[0]) * gradient, None


class Run:
    """A training whose values depend on all values before, on on the batches and on the device's random numbers."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(12))).cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), 0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3)
        self.loader = DataLoader(TensorDataset(torch.randn(STEPS * BATCH, 8)), batch_size=BATCH, shuffle=True)
        self.bad = -1
        """The step with NaN, from 0."""
        self.after: list[str] = []

    def tensors(self) -> Iterator[Tensor]:
        yield from self.model.parameters()
        for state in self.optimizer.state.values():
            yield from (each for each in state.values() if each.is_cuda)

    def epoch(self, before: Callable[[int], object] = lambda _: None) -> None:
        for step, (x,) in enumerate(self.loader):
            before(step)
            self.optimizer.zero_grad()
            number = torch.tensor(math.nan if step == self.bad else float(x.mean()))
            Loss.apply(self.model(x.cuda()), number).backward()
            self.optimizer.step()
            self.scheduler.step()
            torch.rand(3, device="cuda")
            count = torch.cuda.default_generators[0].get_state()[8:].view(torch.int64).item()
            with torch.no_grad():
                for each in self.tensors():
                    # At first the moments are what was in memory before.
                    then = each.cpu() * 0.5 if self.after else torch.zeros(each.shape)
                    each.copy_(then + number + count / 1024)
            self.after.append(self.value())

    def value(self) -> str:
        """A digest of all values."""
        parts = [each.detach().cpu().numpy().tobytes() for each in self.tensors()]
        parts += [torch.cuda.get_rng_state().numpy().tobytes(), repr(self.scheduler.state_dict()).encode()]
        return hashlib.md5(b"".join(parts)).hexdigest()


@pytest.mark.parametrize("pinnable", [0, 64 << 20])
def test_a_copy_to_pinned_memory_waits_once(pinnable: int) -> None:
    run = Run()
    run.epoch()
    torch.cuda.synchronize()
    kept, before = run.value(), calls().waits
    copied = RunCopy([run.model], [run.optimizer], [run.scheduler], CopyDetails(pinnable=pinnable))
    waits = calls().waits - before
    # Weights, gradients and two moments of 24 tensors; a copy to other memory waits twice.
    assert (waits, copied.pinned) == ((1, 4 << 20) if pinnable else (2 * 4 * 24, 0))
    reserved = torch.cuda.memory_reserved()
    run.epoch()
    assert run.value() != kept
    copied.write()
    assert copied.differing() == []
    assert run.value() == kept
    assert torch.cuda.memory_reserved() == reserved


def test_copy_does_without_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    run, made = Run(), torch.empty

    def empty(*size: Any, **how: Any) -> Tensor:
        if how.get("pin_memory"):
            raise RuntimeError("CUDA error: out of memory")
        return made(*size, **how)

    with monkeypatch.context() as limited:
        limited.setattr(torch, "empty", empty)
        copied = RunCopy([run.model], [run.optimizer], [], CopyDetails(pinnable=64 << 20))
    run.epoch()
    copied.write()
    assert (copied.pinned, copied.differing()) == (0, [])


def test_all_kept_states_together_pin_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_keeping, "_PINNED", 8 << 20)
    run = Run()
    with watched() as seen:
        run.epoch(lambda step: seen.submit(KeepState) if step in (3, 5, 7) else None)
        pinned = [each.copy.pinned for each in seen.probe.dispatcher.keeping.states]
    assert pinned == [4 << 20, 4 << 20, 0]


def test_a_run_returns_to_the_bit() -> None:
    run = Run()

    def before(step: int) -> None:
        if step == 6:
            seen.submit(KeepState)
        if step == 12:
            seen.submit(ReturnToState)

    with watched() as seen:
        run.epoch(before)
        (back,) = seen.all(ev.ReturnedToState)
    assert (back.step, back.to_step, back.differing) == (12, 6, ())


@pytest.fixture
def _finite_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_finite(models: list[nn.Module], optimizers: list[Any]) -> list[str]:
        tensors = [each for model in models for each in model.parameters()]
        return [] if all(bool(each.detach().cpu().isfinite().all()) for each in tensors) else ["weights"]

    monkeypatch.setattr(state_keeping, "not_finite", not_finite)
    monkeypatch.setattr(finite_states, "_SHARE", 0)
    monkeypatch.setattr(finite_states, "_LEAST_NS", 0)


@pytest.mark.usefixtures("_finite_by_the_host")
def test_policy_returns_from_nan_that_device_has() -> None:
    run = Run()
    run.bad = 11
    with watched(budget=0.01, return_at_nan=3) as seen:
        run.epoch()
    (back,) = seen.all(ev.ReturnedToState)
    assert back.why.startswith("NaN in the loss of step 12 (batch 12 of 20 of epoch 1: samples ")
    assert back.to_step < 12 <= back.step
    assert not back.differing
    assert all(bool(each.detach().cpu().isfinite().all()) for each in run.tensors())
    assert seen.all(ev.ReturnsEnded) == []


def test_after_try_run_is_as_without_it() -> None:
    alone = Run()
    alone.epoch()
    run = Run()
    with watched() as seen:
        run.epoch(lambda step: seen.submit(_try) if step == 5 else None)
    assert seen.refusals() == []
    (tried,) = seen.all(ev.ChangeTried)
    assert [len(each.losses) for each in tried.sides] == [TRIED, TRIED]
    assert len(run.after) == STEPS + TRIED
    assert run.after[-1] == alone.after[-1]
    assert seen.all(ev.ProbeFailed) == []


def _try(number: int) -> TryChange:
    return TryChange(number, ("freeze 0",), TRIED)


def resumed_without(file: Path, forgets: str) -> Watched:
    with watched() as seen:
        run = Run()
        saved = torch.load(file)
        run.model.load_state_dict(saved["model"])
        if forgets != "optimizer":
            run.optimizer.load_state_dict(saved["optimizer"])
        run.scheduler.load_state_dict(saved["scheduler"])
        torch.set_rng_state(saved["rng"])
        if forgets != "cuda":
            torch.cuda.set_rng_state_all(saved["cuda_rng"])
        run.epoch()
    return seen


@pytest.mark.parametrize(("forgets", "rule"), [("", ""), ("cuda", "GT804"), ("optimizer", "GT801")])
def test_a_resumed_run(forgets: str, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # Some values of all tensors are gathered by a kernel.
    picked = saved_contents._picked
    monkeypatch.setattr(saved_contents, "_picked", lambda tensor, count: picked(tensor.detach().cpu(), count))
    file = tmp_path / "last.pt"
    with watched() as seen, monkeypatch.context() as other:
        other.setattr(os, "getpid", lambda: 1)
        run = Run()
        run.epoch()
        torch.save(
            {
                "model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(),
                "scheduler": run.scheduler.state_dict(), "rng": torch.get_rng_state(),
                "cuda_rng": torch.cuda.get_rng_state_all(),
            },
            file,
        )  # fmt: skip
    (saved,) = seen.all(ev.CheckpointSaved)
    seen = resumed_without(file, forgets)
    (event,) = seen.all(ev.RunResumed)
    # The checksums are of what the devices have.
    assert (event.weights, event.digests, event.saved_step) == (saved.weights, (saved.digest,), STEPS)
    found = {name: [*rule_named(name).check(seen.state)] for name in ("GT801", "GT803", "GT804")}
    assert [name for name, each in found.items() if each] == ([rule] if rule else [])
    if forgets == "cuda":
        assert "a state of the generator of CUDA device 0" in found["GT804"][0].message
