"""Modes, groups, gradients and checkpoint files as commands ask for them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from helpers.watched import Watched, watched
from torch import nn
from torch.optim import lr_scheduler as schedulers

from gradtui.probe.commands.files.file_writer import FileWriter
from gradtui.probe.commands.param_groups.param_group_settings import set_group
from gradtui.probe.runtime import CommandRefused
from gradtui.protocol.commands import Command, RunSteps, SaveCheckpoint, SetGroup, SetMode, Undo, ZeroGradients
from gradtui.protocol.events import CommandApplied, GroupsRead
from gradtui.run.text import refusals
from gradtui.system.run_files import present_directory

X = torch.linspace(-1, 1, 24).view(6, 4)
Asked = Mapping[int, list[Callable[[int], Command]]]


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.5)), nn.Linear(8, 2))


def train(
    asked: Asked,
    *,
    model: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    after: Callable[[], object] = lambda: None,
    clears: bool = True,
    steps: int = 6,
    prepare: Callable[[Watched], object] = lambda seen: None,
) -> Watched:
    model = model if model is not None else small()
    optimizer = optimizer if optimizer is not None else torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        prepare(seen)
        for _ in seen.steps(steps, asked):
            model(X).square().mean().backward()
            optimizer.step()
            if clears:
                optimizer.zero_grad()
            after()
    return seen


def texts(seen: Watched) -> list[str]:
    return [event.text for event in seen.all(CommandApplied)]


# Modes


def test_module_enters_eval_mode_with_its_submodules() -> None:
    model = small()
    seen = train({2: [lambda n: SetMode(n, "1", False)]}, model=model)
    assert [module.training for module in model.modules()] == [True, True, False, False, False, True]
    assert model[1][0].num_batches_tracked.item() == 2
    assert "in eval mode: 3 modules" in texts(seen)[0]


def test_undo_gives_each_module_its_own_flag_back() -> None:
    model = small()
    model[1][0].eval()
    before = [module.training for module in model.modules()]
    seen = train({1: [lambda n: SetMode(n, "", False)], 4: [Undo]}, model=model)
    assert [module.training for module in model.modules()] == before
    # Whether the root's forward in eval mode trains is known only after its backward.
    assert texts(seen)[1].endswith(": 5 modules")


def test_a_mode_that_is_there_already_is_refused() -> None:
    seen = train({1: [lambda n: SetMode(n, "1", True)], 2: [lambda n: SetMode(n, "1.x", True)]})
    assert seen.refusals()[0] == "1 is already in training mode"
    assert "'1.x'" in seen.refusals()[1]


def test_mode_set_back_by_script_is_not_restored() -> None:
    model = small()
    seen = train({1: [lambda n: SetMode(n, "1", False)], 4: [Undo]}, model=model, after=model.train)
    assert seen.refusals() == [refusals.cannot_be_undone("put 1 in eval mode", refusals.SET_BACK)]


# Groups


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "lambda": lambda o: schedulers.LambdaLR(o, lambda epoch: 0.9**epoch),
    "multiplicative": lambda o: schedulers.MultiplicativeLR(o, lambda epoch: 0.9),
    "step": lambda o: schedulers.StepLR(o, 2, 0.5),
    "multistep": lambda o: schedulers.MultiStepLR(o, [2, 5], 0.5),
    "constant": lambda o: schedulers.ConstantLR(o, 0.5, 4),
    "linear": lambda o: schedulers.LinearLR(o, 0.5, 1.0, 6),
    "exponential": lambda o: schedulers.ExponentialLR(o, 0.9),
    "polynomial": lambda o: schedulers.PolynomialLR(o, 20),
    "cosine": lambda o: schedulers.CosineAnnealingLR(o, 20),
    "restarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 4),
    "one cycle": lambda o: schedulers.OneCycleLR(o, 0.2, total_steps=20, cycle_momentum=False),
    "cyclic": lambda o: schedulers.CyclicLR(o, 0.05, 0.2, 3, cycle_momentum=False),
    "sequential": lambda o: schedulers.SequentialLR(
        o, [schedulers.LinearLR(o, 0.5, 1.0, 3), schedulers.ExponentialLR(o, 0.9)], [3]
    ),
    "chained": lambda o: schedulers.ChainedScheduler(
        [schedulers.ConstantLR(o, 0.5, 3), schedulers.ExponentialLR(o, 0.9)]
    ),
}


def rates_after(name: str, asked: Asked, steps: int = 10) -> tuple[list[float], Watched]:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = SCHEDULERS[name](optimizer)
    seen_rates: list[float] = []

    def after() -> None:
        scheduler.step()
        seen_rates.append(float(optimizer.param_groups[0]["lr"]))

    return seen_rates, train(asked, model=model, optimizer=optimizer, after=after, steps=steps)


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_continues_new_rate_and_undo_restores_it(name: str) -> None:
    plain, _ = rates_after(name, {})
    half = plain[3] / 2
    changed, seen = rates_after(name, {4: [lambda n: SetGroup(n, 0, 0, half)], 7: [Undo]})
    assert seen.refusals() == []
    assert changed[:4] == plain[:4]
    assert changed[4:7] == pytest.approx([rate / 2 for rate in plain[4:7]])
    assert changed[7:] == pytest.approx(plain[7:])
    assert "continues from there" in texts(seen)[0]


def test_rate_without_scheduler_is_restored_to_bit() -> None:
    model = small()
    optimizer = torch.optim.AdamW(
        [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.03}], lr=0.1
    )
    asked: Asked = {1: [lambda n: SetGroup(n, 0, 1, 0.02, 0.5)], 3: [lambda n: SetGroup(n, 0, 0, None, 0.0)]}
    seen = train(asked, model=model, optimizer=optimizer)
    one, two = optimizer.param_groups
    assert (one["lr"], one["weight_decay"], two["lr"], two["weight_decay"]) == (0.1, 0.0, 0.02, 0.5)
    assert "0.03 → 0.02, weight decay 0.01 → 0.5" in texts(seen)[0]
    last = seen.all(GroupsRead)[-1].optimizers[0]
    assert [(group.learning_rate, group.weight_decay) for group in last] == [(0.1, 0.0), (0.02, 0.5)]
    train({1: [lambda n: SetGroup(n, 0, 1, 0.7, 0.9)], 2: [Undo]}, model=model, optimizer=optimizer)
    assert (two["lr"], two["weight_decay"]) == (0.02, 0.5)


def test_a_rate_that_is_a_tensor_stays_one() -> None:
    model = small()
    rate = torch.tensor(0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, foreach=False)
    train({1: [lambda n: SetGroup(n, 0, 0, 0.25)]}, model=model, optimizer=optimizer)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == 0.25


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            lambda n: SetGroup(n, 1, 0, 0.1),
            "there is no such param group; there is optimizer=0 group=0 (SGD) has learning rate 0.1",
        ),
        (
            lambda n: SetGroup(n, 0, 4, 0.1),
            "there is no such param group; there is optimizer=0 group=0 (SGD) has learning rate 0.1",
        ),
        (lambda n: SetGroup(n, 0, 0), "neither a learning rate nor a weight decay was named"),
        (lambda n: SetGroup(n, 0, 0, -0.1), "a learning rate is a number from 0 on, not -0.1"),
        (lambda n: SetGroup(n, 0, 0, float("nan")), "a learning rate is a number from 0 on, not nan"),
        (lambda n: SetGroup(n, 0, 0, 0.1), "that is already the case"),
        (
            lambda n: SetGroup(n, 0, 0, 1e39),
            "a learning rate of 1e+39 would break the run: its limit is 1e+30, so that float32 does not overflow",
        ),
        (lambda n: RunSteps(n, 1 << 63), "its count needs more than 64 bits"),
    ],
)
def test_groups_refuse(command: Callable[[int], Command], reason: str) -> None:
    assert train({1: [command]}).refusals() == [reason]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.Adadelta, torch.optim.NAdam])
@pytest.mark.parametrize("setting", ["learning_rate", "weight_decay"])
def test_the_largest_setting_does_not_end_the_run(kind: type[torch.optim.Optimizer], setting: str) -> None:
    model = small()
    optimizer = kind(model.parameters(), lr=0.1)  # type: ignore[call-arg]
    assert not train({1: [lambda n: SetGroup(n, 0, 0, **{setting: 1e30})]}, model=model, optimizer=optimizer).refusals()


def test_setting_fits_in_numbers_of_parameters() -> None:
    model = small().half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    command = SetGroup(1, 0, 0, 7e4)
    with pytest.raises(CommandRefused, match="of 70000 would break the run: float16 ends at 65504"):
        set_group(command, [optimizer])
    assert optimizer.param_groups[0]["lr"] == 0.1
    set_group(replace(command, learning_rate=6e4), [optimizer])


def test_scheduled_rates_stay_within_limits_of_optimizer() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = schedulers.LambdaLR(optimizer, lambda epoch: 1.0 if epoch == 0 else 1e-20)
    optimizer.step()
    scheduler.step()
    with pytest.raises(
        CommandRefused, match="LambdaLR would scale its rates with it, up to 1e\\+32, which would break"
    ):
        set_group(SetGroup(1, 0, 0, 1e12, 0.5), [optimizer])
    assert scheduler.base_lrs == [1.0]
    assert optimizer.param_groups[0]["weight_decay"] == 0
    undo = set_group(SetGroup(1, 0, 0, 1e-30), [optimizer]).undo
    optimizer.param_groups[0]["lr"] = 1e25
    with pytest.raises(CommandRefused, match="the learning rate would become 1e\\+35, which would break"):
        undo()  # type: ignore[misc]
    assert optimizer.param_groups[0]["lr"] == 1e25


# Gradients


def test_gradients_that_pile_up_are_cleared() -> None:
    model = small()
    held: list[bool] = []
    seen = train(
        {2: [ZeroGradients]},
        model=model,
        clears=False,
        steps=3,
        after=lambda: held.append(model[0].weight.grad is not None),
    )
    tensors = list(model.parameters())
    size = sum(tensor.nbytes for tensor in tensors)
    assert texts(seen) == [f"cleared the gradients of {len(tensors)} tensors: {size} B given back"]


def test_gradients_cleared_by_script_need_no_clearing() -> None:
    assert train({2: [ZeroGradients]}).refusals() == [refusals.NO_GRADIENTS]


def test_a_script_without_an_optimizer_finds_zeros() -> None:
    model = small()
    with watched() as seen:
        for _ in seen.steps(4, {2: ZeroGradients}):
            model(X).square().mean().backward()
            for parameter in model.parameters():
                parameter.data -= 0.1 * parameter.grad
                parameter.grad.zero_()
    assert texts(seen)[0].endswith("B of zeros")


# Checkpoint files


def test_a_checkpoint_holds_what_training_goes_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    snapshot: dict[str, Any] = {}

    def after() -> None:
        # Where the script has gone since does not matter.
        monkeypatch.chdir(elsewhere)
        if not snapshot.get("done") and len(steps) == 2:
            snapshot.update(
                done=True, weights=[p.detach().clone() for p in model.parameters()], rng=torch.get_rng_state()
            )
            snapshot["python"] = random.getstate()
        steps.append(1)

    steps: list[int] = []
    seen = train({3: [lambda n: SaveCheckpoint(n, "run.pt")]}, model=model, optimizer=optimizer, after=after)
    loaded = torch.load(tmp_path / "run.pt", weights_only=True)
    assert loaded["step"] == 3
    (state,) = loaded["models"].values()
    fresh = small()
    fresh.load_state_dict(state)
    assert all(torch.equal(one, other) for one, other in zip(fresh.parameters(), snapshot["weights"]))
    assert torch.equal(loaded["rng"]["torch"], snapshot["rng"])
    assert loaded["rng"]["python"] == snapshot["python"]
    torch.optim.Adam(fresh.parameters()).load_state_dict(loaded["optimizers"][0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "run.pt"]
    assert texts(seen)[0].startswith(f"saved a checkpoint to {tmp_path / 'run.pt'}: ")
    assert "training was paused for" in texts(seen)[0]


def test_relative_paths_begin_where_the_run_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert FileWriter(None, str(tmp_path)).write("x", ("x", ".x"), lambda file: file.write(b"1")) == (
        f"{tmp_path}/x",
        1,
    )
    with pytest.raises(CommandRefused, match="No such file or directory"):
        FileWriter(None, present_directory()).write("x", ("x", ".x"), lambda file: file.write(b"1"))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("no/such/x.pt", "No such file or directory"),
        (".", "is not a file"),
        ("/dev/null", "/dev/null is not a file"),
        ("", "no directory for files"),
    ],
)
def test_a_bad_path_is_one_line(file: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (reason,) = train({2: [lambda n: SaveCheckpoint(n, file)]}).refusals()
    assert words in reason
    assert "\n" not in reason
    assert list(tmp_path.iterdir()) == []


def test_umask_applies_to_checkpoint_without_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            # Another thread of the script may create a file at that moment.
            patched.setattr(os, "umask", lambda mask: pytest.fail("the umask of the script was changed"))
            train({2: [lambda n: SaveCheckpoint(n, str(tmp_path / "run.pt"))]})
    finally:
        os.umask(before)
    assert (tmp_path / "run.pt").stat().st_mode & 0o777 == 0o640


def test_full_disk_is_one_line_and_keeps_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "run.pt"
    target.write_bytes(b"before")

    def full(state: object, stream: BinaryIO) -> None:
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    (reason,) = train({2: [lambda n: SaveCheckpoint(n, str(target))]}).refusals()
    assert reason == refusals.not_written(target, "No space left on device")
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]
    assert target.read_bytes() == b"before"


def test_a_really_full_disk_too() -> None:
    # What torch's own writer makes of it is another error than that of the file.
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")

    def write(kind: str, suffix: str, fill: Callable[[BinaryIO], object]) -> str:
        with open("/dev/full", "wb", buffering=0) as stream:
            fill(stream)
        return "/dev/full"

    def prepare(seen: Watched) -> None:
        seen.probe.dispatcher.files.create = write

    (reason,) = train({2: [SaveCheckpoint]}, prepare=prepare).refusals()
    assert reason.endswith("No space left on device")
