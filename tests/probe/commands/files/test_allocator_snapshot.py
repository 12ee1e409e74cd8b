"""Key `s`: the allocator's snapshot is written at a step boundary, or refused with the reason. CUDA is a fake here."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from helpers.watched import Watched, watched
from torch import nn

from gradtui.protocol.commands import SaveAllocatorSnapshot
from gradtui.protocol.events import CommandApplied, CommandRejected
from gradtui.run.text import refusals
from gradtui.system.run_files import RunFiles

SNAPSHOT: dict[str, Any] = {
    "segments": [{"address": 1, "total_size": 2 << 20, "blocks": [{"size": 512, "state": "active_allocated"}]}],
    "device_traces": [[]],
    "allocator_settings": {},
}
RECORDED = SNAPSHOT | {"device_traces": [[{"action": "alloc", "addr": 1, "size": 512, "stream": 0}]]}


def ask(seen: Watched) -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in seen.steps(3, {1: SaveAllocatorSnapshot}):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def fake_cuda(monkeypatch: pytest.MonkeyPatch, snapshot: dict[str, Any]) -> list[str]:
    """CUDA is in use and has this snapshot; returns the changes made to the recording of history, of which none is due."""
    changes: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: snapshot)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda *given, **_: changes.append(str(given)))
    return changes


@pytest.mark.parametrize(("snapshot", "has_history"), [(SNAPSHOT, False), (RECORDED, True)])
def test_snapshot_is_written_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: dict[str, Any], has_history: bool
) -> None:
    changes = fake_cuda(monkeypatch, snapshot)
    with watched() as seen:
        seen.probe.dispatcher.files.create = RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)}).write
        ask(seen)
    (applied,) = seen.all(CommandApplied)
    (path,) = (tmp_path / "gradtui").iterdir()
    assert pickle.loads(path.read_bytes()) == snapshot
    assert applied.step == 1
    assert str(path) in applied.text
    assert ("_record_memory_history" in applied.text) is not has_history
    assert changes == []
    assert [entry.text for entry in seen.state.log if entry.kind == "applied"] == [applied.text]


def refusal(seen: Watched) -> str:
    (rejected,) = seen.all(CommandRejected)
    assert seen.state.step == 3
    assert seen.state.log[-1].text.startswith("cannot write a snapshot of the allocator: ")
    return rejected.reason


def test_without_cuda_it_is_refused_in_one_line() -> None:
    with watched() as seen:
        ask(seen)
    assert refusal(seen) == refusals.ONLY_ON_CUDA


def test_a_version_of_torch_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda(monkeypatch, SNAPSHOT)
    monkeypatch.delattr(torch.cuda.memory, "_snapshot")
    with watched() as seen:
        seen.probe.dispatcher.files.create = RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)}).write
        ask(seen)
    assert refusal(seen) == refusals.TORCH_VERSION


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(kind: str, suffix: str, fill: Callable[[BinaryIO], object]) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    fake_cuda(monkeypatch, SNAPSHOT)
    with watched() as seen:
        seen.probe.dispatcher.files.create = full
        ask(seen)
    assert refusal(seen) == refusals.not_written("it", "No space left on device")
