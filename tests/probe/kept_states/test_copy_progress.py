"""How far a long copy is: told from the first second on, every half second, and when it is over."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.keeping_runs import Run, trained

from gradtui.probe.commands.returns import state_keeping
from gradtui.probe.kept_states import CopyProgress, host_memory
from gradtui.protocol import events as ev
from gradtui.protocol.commands import KeepState


def test_long_copy_is_told_every_half_second() -> None:
    told: list[int] = []
    now = [0.0]
    progress = CopyProgress(told.append, lambda: now[0])
    for tenth in range(1, 26):
        now[0] = tenth / 10
        progress.add(10)
    assert told == [100, 150, 200, 250]
    assert progress.has_told


def test_a_short_copy_tells_nothing(tmp_path: Path) -> None:
    seen, _ = trained(Run(), {4: [KeepState, lambda number: KeepState(number, file=str(tmp_path / "x"))]})
    assert not seen.all(ev.CopyProgress)


def test_long_copy_is_told_and_always_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradtui.probe.kept_states import copy_progress

    monkeypatch.setattr(state_keeping, "_LARGE", 0)
    monkeypatch.setattr(copy_progress, "FIRST_S", 0.0)
    monkeypatch.setattr(copy_progress, "EVERY_S", 0.0)
    seen, _ = trained(
        Run(),
        {
            4: [KeepState],
            6: [lambda number: KeepState(number, file=str(tmp_path / "x"))],
            8: [lambda number: KeepState(number, file=str(tmp_path / "no" / "x"))],
        },
    )
    told = seen.all(ev.CopyProgress)
    assert {each.what for each in told} == {"keep", "write"}
    for step in (4, 6, 8):
        of_step = [each for each in told if each.step == step]
        assert of_step[-1].is_over
        assert all(0 <= each.done <= each.total for each in of_step)
    assert seen.state.kept.copying is None
    (*_, before, over) = (each for each in told if each.step == 4)
    assert before.done == over.done == over.total


def test_large_tensor_is_copied_in_stretches_to_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "_STRETCH", 64)
    copied: list[int] = []
    memory = host_memory.HostMemory(copied.append)
    for tensor in (torch.arange(50.0).view(5, 10), torch.arange(50).view(5, 10).t(), torch.zeros(0), torch.ones(())):
        copied.clear()
        made = memory.copy_of(tensor)
        assert torch.equal(made, tensor)
        assert made.dtype == tensor.dtype
        assert sum(copied) == tensor.nbytes
    memory.copy_of(torch.arange(50.0))
    assert copied[-4:] == [64, 64, 64, 8]


def test_copies_have_the_strides_of_dense_tensors() -> None:
    memory = host_memory.HostMemory()
    image = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert memory.copy_of(image).stride() == image.stride()
    assert memory.copy_of(torch.arange(12.0).view(3, 4)[:, 1:3]).is_contiguous()
