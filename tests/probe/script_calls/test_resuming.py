"""A run that continues a saved training: silent if everything is restored, and each thing that is not has its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.examples import combinations
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from gradtui.probe.runtime import ranks
from gradtui.protocol.events import CheckpointSaved, FirstBatch, GroupsRefused, RunResumed
from gradtui.run.diagnostics import Match
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.state.findings import Level

STEPS = 20
RULES = ("GT116", "GT216", "GT801", "GT802", "GT803", "GT804")
Parameters = Iterable[Tensor] | list[dict[str, Any]]
Make = Callable[[Parameters], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "AdamW": lambda each: torch.optim.AdamW(each, 1e-3),
    "SGD": lambda each: torch.optim.SGD(each, 1e-2),
    "momentum": lambda each: torch.optim.SGD(each, 1e-2, momentum=0.9),
    "Adagrad": lambda each: torch.optim.Adagrad(each, 1e-2),
}
SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "cosine": lambda each: lr_scheduler.CosineAnnealingLR(each, 200),
    "plateau": lr_scheduler.ReduceLROnPlateau,
    "warm-up": lambda each: lr_scheduler.SequentialLR(
        each, [lr_scheduler.LinearLR(each, 0.1, total_iters=10), lr_scheduler.StepLR(each, 20)], [10]
    ),
}


@dataclass
class Training:
    """A model with dropout, its loader, optimizer and scheduler. Two of its modules have the same shapes."""

    make: Make = OPTIMIZERS["AdamW"]
    schedule: Callable[[torch.optim.Optimizer], Any] = SCHEDULERS["cosine"]
    seed: int = 5
    flips: bool = False
    frozen: str = ""

    def __post_init__(self) -> None:
        torch.manual_seed(self.seed)
        self.model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
        for name, each in self.model.named_parameters():
            each.requires_grad_(not self.frozen or not name.startswith(self.frozen))
        data = TensorDataset(torch.randn(160, 8))
        self.loader = DataLoader(data, batch_size=16, shuffle=True)
        self.optimizer = self.make(self.parameters())
        self.scheduler = self.schedule(self.optimizer)

    def parameters(self) -> list[Tensor]:
        found = [each for each in self.model.parameters() if each.requires_grad]
        return [*found[2:4], *found[:2], *found[4:]] if self.flips else found

    def train(self, steps: int = STEPS) -> list[float]:
        losses: list[float] = []
        while len(losses) < steps:
            for (x,) in self.loader:
                loss = nn.functional.mse_loss(self.model(x), x[:, :3])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                is_plateau = isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau)
                self.scheduler.step(*([loss.detach()] if is_plateau else []))
                losses.append(loss.item())
                if len(losses) == steps:
                    break
        return losses

    def save(self, file: Path, without: str = "") -> None:
        parts = {
            "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(), "rng": torch.get_rng_state(),
        }  # fmt: skip
        torch.save({name: part for name, part in parts.items() if name != without}, file)

    def load(self, file: Path, without: str = "") -> None:
        saved = torch.load(file)
        for name in ("model", "optimizer", "scheduler"):
            if name != without:
                getattr(self, name).load_state_dict(saved[name])
        if without != "rng":
            torch.set_rng_state(saved["rng"])


def saved_by(new: Callable[[], Training], file: Path, without: str = "") -> CheckpointSaved:
    with watched() as seen:
        training = new()
        training.train()
        training.save(file, without)
    (saved,) = seen.all(CheckpointSaved)
    return saved


def matches(seen: Watched) -> dict[str, list[Match]]:
    found = {rule: list(rule_named(rule).check(seen.state)) for rule in RULES}
    return {rule: each for rule, each in found.items() if each}


@pytest.mark.parametrize(("make", "schedule"), combinations(OPTIMIZERS, SCHEDULERS))
def test_a_correct_resume(make: str, schedule: str, tmp_path: Path) -> None:
    def new() -> Training:
        return Training(OPTIMIZERS[make], SCHEDULERS[schedule])

    whole = new().train(STEPS + 10)
    saved = saved_by(new, tmp_path / "last.pt")
    with watched() as seen:
        training = new()
        training.load(tmp_path / "last.pt")
        # An epoch has ten steps, so that the loader begins an epoch in both.
        losses = training.train(10)
    assert losses == whole[STEPS:]
    assert matches(seen) == {}
    (resumed,) = seen.all(RunResumed)
    assert (resumed.saved_step, resumed.is_restored, resumed.schedule_goes_on) == (STEPS, True, True)
    assert (resumed.weights, resumed.tensors) == (saved.weights, 6)
    assert resumed.random_draws is not None


def test_what_is_noted_of_a_saved_training(tmp_path: Path) -> None:
    saved = saved_by(lambda: Training(frozen="0."), tmp_path / "last.pt")
    (optimizer,) = saved.optimizers
    assert (optimizer.type_name, optimizer.tensors, optimizer.updates) == ("AdamW", 4, STEPS)
    (group,) = optimizer.groups
    assert group.names == ("2.weight", "2.bias", "4.weight", "4.bias")
    # The cosine of CosineAnnealingLR after 20 of 200 steps, by its formula.
    assert group.learning_rate == pytest.approx(1e-3 * (1 + torch.cos(torch.tensor(torch.pi * STEPS / 200))).item() / 2)
    assert [(each.type_name, each.last_epoch) for each in saved.schedulers] == [("CosineAnnealingLR", STEPS)]
    assert (saved.step, saved.has_random, saved.has_schedulers, saved.tensors) == (STEPS, True, True, 6)
    assert saved.file == str(tmp_path / "last.pt")


def resumed_with(file: Path, resume: Callable[[Training], object], **settings: Any) -> Watched:
    with watched() as seen:
        training = Training(**settings)
        resume(training)
        training.train(10)
    return seen


def only(found: dict[str, list[Match]], rule: str) -> Match:
    assert list(found) == [rule]
    (match,) = found[rule]
    return match


def test_an_optimizer_that_was_not_given_its_state(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    saved_by(Training, file)
    match = only(matches(resumed_with(file, lambda each: each.load(file, "optimizer"))), "GT801")
    assert " 6 tensors " in match.message
    assert " 6 after 20 steps" in match.message
    # The scheduler and the random state were restored: it is no new training.
    assert match.level is None


def test_an_optimizer_that_is_made_anew_after_loading(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    saved_by(Training, file)

    def resume(training: Training) -> None:
        training.load(file)
        rates = [group["lr"] for group in training.optimizer.param_groups]
        training.optimizer = OPTIMIZERS["AdamW"](training.parameters())
        training.scheduler.optimizer = training.optimizer
        training.optimizer.param_groups[0]["lr"] = rates[0]

    match = only(matches(resumed_with(file, resume)), "GT801")
    assert match.evidence["how"] == "other"


def test_only_the_weights_may_begin_a_new_training(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    saved_by(Training, file)
    seen = resumed_with(file, lambda each: each.model.load_state_dict(torch.load(file)["model"]))
    found = matches(seen)
    assert only(found, "GT801").level is Level.NOTE


def test_layer_that_was_frozen_when_training_was_saved(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    saved_by(lambda: Training(frozen="0."), file)

    def resume(training: Training) -> None:
        with pytest.raises(ValueError, match="doesn't match the size"):
            training.optimizer.load_state_dict(torch.load(file)["optimizer"])

    seen = resumed_with(file, resume)
    match = only(matches(seen), "GT802")
    assert "group 0 has 6 parameters" in match.message
    assert "the optimizer has 0.weight and 0.bias" in match.message
    assert match.paths == ("0.weight", "0.bias")
    (refused,) = seen.all(GroupsRefused)
    assert (refused.saved_step, refused.file) == (STEPS, str(file))


def test_a_layer_that_is_frozen_now(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    saved_by(Training, file)

    def resume(training: Training) -> None:
        with pytest.raises(ValueError, match="doesn't match the size"):
            training.optimizer.load_state_dict(torch.load(file)["optimizer"])

    match = only(matches(resumed_with(file, resume, frozen="2.")), "GT802")
    assert "the optimizer lacks 2.weight and 2.bias" in match.message


def test_moments_on_other_tensors(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    saved_by(Training, file)
    match = only(matches(resumed_with(file, lambda each: each.load(file), flips=True)), "GT216")
    assert (match.evidence["moved"], match.evidence["tensors"]) == (4, 6)
    assert "2.weight has that of 0.weight" in match.message


@pytest.mark.parametrize("not_saved", ["", "scheduler"])
def test_a_schedule_that_begins_again(tmp_path: Path, not_saved: str) -> None:
    file = tmp_path / "last.pt"
    saved_by(Training, file, without=not_saved)
    match = only(matches(resumed_with(file, lambda each: each.load(file, "scheduler"))), "GT803")
    assert match.message.startswith("CosineAnnealingLR begins again at 0: ")
    assert (match.evidence["last_epoch"], match.evidence["was_saved"]) == (STEPS, not not_saved)
    assert match.level is (Level.NOTE if not_saved else None)


def test_a_random_state_that_is_not_restored(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    saved_by(Training, file)
    only(matches(resumed_with(file, lambda each: each.load(file, "rng"))), "GT804")


@pytest.mark.parametrize(("saved_by_rank", "rank", "speaks"), [(0, 0, True), (0, 1, False), (1, 1, True)])
def test_rank_compares_random_state_that_is_its_own(
    saved_by_rank: int, rank: int, speaks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "last.pt"
    monkeypatch.setattr(ranks, "rank", lambda: saved_by_rank)
    assert saved_by(Training, file).rank == saved_by_rank
    monkeypatch.setattr(ranks, "rank", lambda: rank)
    found = matches(resumed_with(file, lambda each: each.load(file, "rng")))
    assert list(found) == (["GT804"] if speaks else [])


def test_keys_of_which_none_fits(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    saved_by(Training, file)

    def resume(training: Training) -> None:
        training.load(file, "model")
        weights = {f"module.{key}": each for key, each in torch.load(file)["model"].items()}
        training.model.load_state_dict(weights, strict=False)

    match = only(matches(resumed_with(file, resume)), "GT116")
    assert "loaded none of 6 tensors" in match.message


def test_a_pretrained_backbone_with_a_new_head(tmp_path: Path) -> None:
    file = tmp_path / "backbone.pt"
    training = Training()
    with watched():
        training.train()
        torch.save(training.model.state_dict(), file)

    def resume(training: Training) -> None:
        backbone = {key: each for key, each in torch.load(file).items() if not key.startswith("4.")}
        training.model.load_state_dict(backbone, strict=False)

    assert matches(resumed_with(file, resume)) == {}


def test_the_checkpoint_of_another_model_is_no_resume(tmp_path: Path) -> None:
    file = tmp_path / "teacher.pt"
    saved_by(Training, file)

    def resume(training: Training) -> None:
        training.teacher = Training().model  # type: ignore[attr-defined]
        training.teacher.load_state_dict(torch.load(file)["model"])  # type: ignore[attr-defined]

    assert matches(resumed_with(file, resume)) == {}


def test_the_first_batch_is_that_after_saving(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    with watched() as seen:
        training = Training()
        training.train()
        training.save(file)
        training.train(10)
    assert [each.step for each in seen.all(FirstBatch)] == [STEPS]
    (before,) = seen.all(FirstBatch)
    again = resumed_with(file, lambda each: each.load(file))
    other = resumed_with(file, lambda each: each.load(file, "rng"))
    (same,), (differing,) = again.all(FirstBatch), other.all(FirstBatch)
    assert before.digest == same.digest != ""
    assert differing.digest not in ("", same.digest)


def pair() -> tuple[list[nn.Module], list[torch.optim.Optimizer]]:
    torch.manual_seed(5)
    models: list[nn.Module] = [nn.Linear(4, 8), nn.Linear(8, 1)]
    return models, [torch.optim.Adam(each.parameters()) for each in models]


def train_in_turns(models: list[nn.Module], optimizers: list[torch.optim.Optimizer]) -> None:
    """Make five steps of the second optimizer before each one of the first."""
    for step in range(18):
        optimizer = optimizers[step % 6 != 5]
        models[1](models[0](torch.randn(3, 4))).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("forgotten", [None, 0, 1])
def test_optimizers_that_take_turns(tmp_path: Path, forgotten: int | None) -> None:
    file = tmp_path / "last.pt"
    with watched():
        models, optimizers = pair()
        train_in_turns(models, optimizers)
        torch.save([each.state_dict() for each in optimizers], tmp_path / "list.pt")
        torch.save(
            {"models": [each.state_dict() for each in models], "optimizers": torch.load(tmp_path / "list.pt")}, file
        )
    with watched() as seen:
        models, optimizers = pair()
        saved = torch.load(file)
        for at, (model, optimizer) in enumerate(zip(models, optimizers)):
            model.load_state_dict(saved["models"][at])
            if at != forgotten:
                optimizer.load_state_dict(saved["optimizers"][at])
        train_in_turns(models, optimizers)
    found = matches(seen)
    assert {each.optimizer for each in found.pop("GT801", [])} == ({forgotten} if forgotten is not None else set())
    assert found == {}


def test_a_run_whose_steps_are_only_buffered(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    saved_by(Training, file)
    with watched(budget=0.0) as seen:
        Training().train(30)
        training = Training()
        training.load(file, "scheduler")
        training.train(30)
        training.save(file)
        training.train(30)
    assert list(matches(seen)) == ["GT803"]
    (resumed,) = seen.all(RunResumed)
    assert (resumed.optimizer, resumed.step) == (1, 30)
    assert [each.step for each in seen.all(FirstBatch)] == [30, 60]


def test_optimizer_goes_on_after_best_state(tmp_path: Path) -> None:
    with watched() as seen:
        training = Training()
        training.train(10)
        training.save(tmp_path / "best.pt")
        training.train(10)
        training.load(tmp_path / "best.pt", "scheduler")
        training.train(10)
    assert matches(seen) == {}
    assert seen.all(RunResumed) == []


def test_samples_of_a_data_set_are_no_checkpoints(tmp_path: Path) -> None:
    torch.save({"image": torch.ones(3), "label": torch.ones(1)}, tmp_path / "sample.pt")
    with watched() as seen:
        torch.load(tmp_path / "sample.pt")
        Training().train(3)
    assert seen.all(RunResumed) == []
    assert seen.all(CheckpointSaved) == []
