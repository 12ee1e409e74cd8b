"""What safetensors and PyTorch's distributed checkpoints write is noted, and known when a run continues from it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from helpers.watched import Watched, watched
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from gradtui.protocol.events import CheckpointSaved, RunResumed, StateAliased
from gradtui.run.diagnostics.selection import rule_named

safetensors = pytest.importorskip("safetensors.torch")
# Scripts have the functions by their names before gradtui comes in.
save_file, load_file, save_model, load_model = (
    getattr(safetensors, name) for name in ("save_file", "load_file", "save_model", "load_model")
)

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Training:
    def __init__(self) -> None:
        torch.manual_seed(5)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-2)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            x = torch.randn(4, 6)
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x), x[:, :3]).backward()
            self.optimizer.step()


def saved(save: Callable[[Training], object], monkeypatch: pytest.MonkeyPatch, steps: int = 7) -> list[CheckpointSaved]:
    """Train and save, as in a process of another run."""
    with watched() as seen, monkeypatch.context() as other:
        other.setattr(os, "getpid", lambda: 1)
        training = Training()
        training.train(steps)
        save(training)
    return seen.all(CheckpointSaved)


def resumed(load: Callable[[Training], object]) -> Watched:
    with watched() as seen:
        training = Training()
        load(training)
        training.train(3)
    return seen


WRITERS: dict[str, tuple[Callable[[Training, Path], Any], Callable[[Training, Path], Any]]] = {
    "file": (
        lambda each, file: save_file(each.model.state_dict(), file),
        lambda each, file: each.model.load_state_dict(load_file(file)),
    ),
    "model": (lambda each, file: save_model(each.model, str(file)), lambda each, file: load_model(each.model, file)),
    # As `from_pretrained`, which takes the weights from the file by itself.
    "by hand": (
        lambda each, file: save_file(each.model.state_dict(), file),
        lambda each, file: [own.data.copy_(load_file(file)[name]) for name, own in each.model.named_parameters()],
    ),
}


@pytest.mark.parametrize("how", WRITERS)
def test_safetensors(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, load = WRITERS[how]
    file = tmp_path / "model.safetensors"
    (note,) = saved(lambda each: save(each, file), monkeypatch)
    assert (note.step, note.file, note.tensors, note.optimizers) == (7, str(file), 4, ())
    (event,) = resumed(lambda each: load(each, file)).all(RunResumed)
    assert (event.files, event.digests, event.saved_step) == ((str(file),), (note.digest,), 7)
    assert (event.weights, event.step) == (note.weights, 0)


def test_saved_by_this_process_was_never_loaded(tmp_path: Path) -> None:
    with watched() as seen:
        training = Training()
        training.train(7)
        save_file(training.model.state_dict(), tmp_path / "model.safetensors")
    with watched() as again:
        training.optimizer = torch.optim.AdamW(training.model.parameters(), 1e-2)
        training.train(3)
    assert len(seen.all(CheckpointSaved)) == 1
    assert again.all(RunResumed) == []


def states(training: Training) -> dict[str, Any]:
    model, optimizer = get_state_dict(training.model, training.optimizer)
    return {"model": model, "optimizer": optimizer, "rng": torch.get_rng_state()}


def from_distributed(training: Training, folder: Path, *, forgets: str = "") -> None:
    found = states(training)
    if forgets == "optimizer":
        # As a script that gives the optimizer other tensors than those that were loaded.
        found["optimizer"]["state"] = {
            name: {key: each.clone() for key, each in entry.items()}
            for name, entry in found["optimizer"]["state"].items()
        }
    dcp.load(found, checkpoint_id=folder)
    if forgets == "optimizer":
        training.model.load_state_dict(found["model"])
        training.optimizer.state.clear()
    else:
        set_state_dict(
            training.model, training.optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"]
        )
    torch.set_rng_state(found["rng"])


def test_distributed_checkpoints_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "checkpoint"
    (note,) = saved(lambda each: dcp.save(states(each), checkpoint_id=folder), monkeypatch)
    assert (note.step, note.file, note.has_random) == (7, str(folder), True)
    (optimizer,) = note.optimizers
    assert (optimizer.type_name, optimizer.tensors, optimizer.updates) == ("AdamW", 4, 7)
    seen = resumed(lambda each: from_distributed(each, folder))
    (event,) = seen.all(RunResumed)
    assert (event.files, event.digests, event.saved_step) == ((str(folder),), (note.digest,), 7)
    assert (event.is_restored, event.new_state) == (True, None)
    assert event.random_draws is not None
    # What was loaded in place is given to `load_state_dict`: it is no state that has become the live weights.
    assert seen.all(StateAliased) == []


def test_optimizer_that_was_not_given_what_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "checkpoint"
    saved(lambda each: dcp.save(states(each), checkpoint_id=folder), monkeypatch)
    seen = resumed(lambda each: from_distributed(each, folder, forgets="optimizer"))
    (match,) = rule_named("GT801").check(seen.state)
    assert " 4 tensors " in match.message
    assert match.level is None
