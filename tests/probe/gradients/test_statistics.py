"""A frozen module's running statistics hold still too, as after `eval()` in the source, and nothing of ours stays behind."""

from __future__ import annotations

import copy
import io
import threading
from collections.abc import Callable

import pytest
import torch
from helpers.summaries import summarised
from helpers.toggling import X, freeze, normed, step, unfreeze
from helpers.watched import watched
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.checkpoint import checkpoint

from gradtui.probe.commands.freezes.norm_statistics import collects_statistics
from gradtui.protocol.commands import SetMode, SetTrainable, Undo
from gradtui.protocol.events import CommandApplied, FreezeStateChanged, FreezeVerified
from gradtui.protocol.vocabulary import Phase
from gradtui.tui.explanations.explanations import explain

HELD = "2 BatchNorm1d modules hold "


def everything(model: nn.Module) -> dict[str, bytes]:
    file = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    return {name: tensor.view(-1).view(torch.uint8).numpy().tobytes() for name, tensor in file.items()}


def train(
    model: nn.Module, steps: int, at: Callable[[int], object], after_train: Callable[[int], object] = lambda _: None
) -> None:
    """Epochs of two steps, each begun by `train()` and ended by an evaluation."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number in range(steps):
        if number % 2 == 0:
            model.train()
        at(number)
        after_train(number)
        step(model, optimizer)
        if number % 2 == 1:
            model.eval()
            with torch.no_grad():
                model(X)


def held_in_source(model: nn.Sequential, number: int) -> None:
    """What the source would say: freeze at step 3, unfreeze at step 7, `eval()` after each `train()` in between."""
    if number in (3, 7):
        for parameter in model[0].parameters():
            parameter.requires_grad_(number == 7)
            parameter.grad = None
    for norm in (model[0][1], model[0][3]):
        if 3 <= number < 7:
            norm.eval()
        elif number >= 7:
            norm.train()


@pytest.mark.parametrize("budget", [100.0, 0.0], ids=["every step looked at", "steps only marked"])
def test_held_run_equals_script_with_eval(budget: float) -> None:
    model, scripted = normed(), normed()
    commands = {3: freeze("0"), 7: unfreeze("0")}
    modes = []
    with watched(budget=budget) as seen:
        train(
            model,
            10,
            lambda number: (
                modes.append([module.training for module in model.modules()]),
                seen.submit(commands[number]) if number in commands else None,
            ),
        )
    train(scripted, 10, lambda _: None, lambda number: held_in_source(scripted, number))
    assert everything(model) == everything(scripted)
    # What the script reads between its calls is what it has set.
    assert all(all(mode) for mode in modes)
    assert [len(change.statistics) for event in seen.all(CommandApplied) for change in event.changed] == [2, 2]


def test_statistics_alone_stay_same_over_freeze() -> None:
    model = normed()
    buffers: list[dict[str, Tensor]] = []
    with watched() as seen:
        train(
            model,
            20,
            lambda number: (
                seen.submit(freeze("0")) if number == 4 else None,
                buffers.append({name: b.clone() for name, b in model.named_buffers()}) if number > 4 else None,
            ),
        )
    for name in ("0.1.running_mean", "0.1.running_var", "0.1.num_batches_tracked", "0.3.running_mean"):
        assert all(torch.equal(each[name], buffers[0][name]) for each in buffers), name
    assert not torch.equal(buffers[0]["1.running_mean"], buffers[-1]["1.running_mean"])
    (verified,) = seen.all(FreezeVerified)
    assert (verified.parameters, verified.moved, verified.statistics) == (4, (), 2)
    assert [entry.kind for entry in seen.state.log].count("verified") == 1


def test_without_statistics_only_the_parameters_are_frozen() -> None:
    model, plain = normed(), normed()
    with watched() as seen:
        train(
            model,
            8,
            lambda n: seen.submit(lambda id_: SetTrainable(id_, "0", False, statistics=False)) if n == 2 else 0,
        )
    train(plain, 8, lambda n: [p.requires_grad_(False) for p in plain[0].parameters()] if n == 2 else None)
    assert model[0][1].num_batches_tracked.item() == 8
    assert seen.all(FreezeStateChanged)[-1].holding == ()


def test_only_what_is_wholly_frozen_holds_its_statistics() -> None:
    cases = {
        "0.0": set(),
        "0.1.weight": set(),
        "0.1": {"0.1"},
        "0": {"0.1", "0.3"},
        "1": {"1"},
    }
    for path, expected in cases.items():
        model = normed()
        with watched() as seen:
            train(model, 4, lambda n, p=path: seen.submit(freeze(p)) if n == 2 else None)
        tree = seen.state.tree
        held = tree.freezes.holding if tree.freezes else ()
        assert {tree.modules[index].path for index in held} == expected, path


def test_a_part_that_is_unfrozen_collects_again() -> None:
    model = normed()
    with watched() as seen:
        train(
            model,
            8,
            lambda n: {2: lambda: seen.submit(freeze("0")), 4: lambda: seen.submit(unfreeze("0.0"))}.get(n, int)(),
        )
    tree = seen.state.tree
    # The one with parameters of its own is wholly frozen still; the other was held for the sake of what is around it.
    assert [tree.modules[index].path for index in tree.freezes.holding] == ["0.1"]


def test_freeze_of_script_can_be_held_and_released() -> None:
    """Already frozen, yet its statistics move: the very thing a person wants to stop."""
    model = normed()
    model[0].requires_grad_(False)
    with watched() as seen:
        train(model, 8, lambda n: {2: lambda: seen.submit(freeze("0")), 6: lambda: seen.submit(Undo)}.get(n, int)())
    assert [HELD in answer for answer in seen.answers()] == [True, False]
    assert model[0][1].num_batches_tracked.item() == 4


def test_undo_lets_them_go_and_holds_them_again() -> None:
    model = normed()
    acts = {2: freeze("0"), 4: unfreeze("0"), 6: Undo, 8: Undo}
    with watched() as seen:
        train(model, 10, lambda n: seen.submit(acts[n]) if n in acts else None)
    assert [HELD in answer for answer in seen.answers()] == [True, False, True, False]
    assert model[0][1].num_batches_tracked.item() == 6


def test_nothing_of_it_is_in_what_script_has() -> None:
    model = normed()
    keys = {name: set(vars(module)) for name, module in model.named_modules()}
    with watched() as seen:
        train(model, 4, lambda n: seen.submit(freeze("0")) if n == 2 else None)
        model.train()
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        saved, copied = torch.load(file, weights_only=False), copy.deepcopy(model)
        assert all(module.training for one in (saved, copied, model) for module in one.modules())
        tracked = copied[0][1].num_batches_tracked.item()
        copied(X)
        # A copy is another module, and not held.
        assert copied[0][1].num_batches_tracked.item() == tracked + 1
    assert {name: set(vars(module)) for name, module in model.named_modules()} == keys
    tracked = model[0][1].num_batches_tracked.item()
    model(X)
    assert model[0][1].num_batches_tracked.item() == tracked + 1


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_forward_run_again_is_held(reentrant: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(2)
            self.first, self.body = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh())

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.body, self.first(x), use_reentrant=reentrant)

    model = Model()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in seen.steps(6, {2: freeze("body")}):
            step(model, optimizer)
            if number == 2:
                kept = model.body[1].running_mean.clone()
    assert torch.equal(model.body[1].running_mean, kept)


def test_forward_that_raises_leaves_modes_as_they_were() -> None:
    model = normed()
    with watched() as seen:
        train(model, 4, lambda n: seen.submit(freeze("0")) if n == 2 else None)
        model.train()
        with pytest.raises(RuntimeError):
            model(torch.zeros(2, 3))
        assert all(module.training for module in model.modules())
        for _ in range(3):
            with pytest.raises(RuntimeError):
                model(torch.zeros(2, 3))
    assert all(module.training for module in model.modules())


def test_calls_after_ctrl_c_in_forward_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    model = normed()
    with watched() as seen:
        train(model, 4, lambda n: seen.submit(freeze("0")) if n == 2 else None)
        model.train()
        held = seen.probe.dispatcher.statistics
        leave = held.leave

        def interrupted() -> None:
            leave()
            raise KeyboardInterrupt

        with monkeypatch.context() as once:
            once.setattr(held, "leave", interrupted)
            with pytest.raises(KeyboardInterrupt):
                model(X)
        assert all(module.training for module in model.modules())
        train(model, 2, lambda _: None)
        kept = model[0][1].running_mean.clone()
        train(model, 2, lambda _: None)
        assert torch.equal(model[0][1].running_mean, kept)
    assert (seen.state.step, seen.state.phases[Phase.EVAL].count) == (8, 4)


def test_model_in_two_threads_is_held_in_both() -> None:
    model = normed()
    inside, go_on = threading.Event(), threading.Event()

    class Waits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                assert go_on.wait(60)
            return x

    model[0].insert(0, Waits())
    with watched() as seen:
        train(model, 4, lambda n: seen.submit(freeze("0")) if n == 2 else None)
        model.train()
        kept = model[0][2].running_mean.clone()
        other = threading.Thread(target=lambda: model(X))
        other.start()
        assert inside.wait(60)
        model(X)
        go_on.set()
        other.join()
        assert torch.equal(model[0][2].running_mean, kept)
        assert all(module.training for module in model.modules())


def test_which_modules_collect_statistics() -> None:
    collecting = [
        nn.BatchNorm1d(2),
        nn.BatchNorm2d(2, affine=False),
        nn.BatchNorm3d(2),
        nn.SyncBatchNorm(2),
        nn.InstanceNorm2d(2, track_running_stats=True),
        torch.nn.utils.spectral_norm(nn.Linear(2, 2)),
        spectral_norm(nn.Linear(2, 2)).parametrizations.weight[0],
    ]
    others = [nn.LayerNorm(2), nn.InstanceNorm2d(2), nn.BatchNorm1d(2, track_running_stats=False), nn.Dropout()]
    assert all(collects_statistics(module) for module in collecting)
    assert not any(collects_statistics(module) for module in others)


def test_spectral_norm_stops_iterating() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(spectral_norm(nn.Linear(4, 4)), nn.Linear(4, 2))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in seen.steps(8, {2: freeze("0")}):
            if number == 3:
                kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
            step(model, optimizer)
    assert all(torch.equal(buffer, kept[name]) for name, buffer in model.named_buffers())


def test_statistics_that_move_all_the_same_are_named() -> None:
    model = normed()
    with watched() as seen:
        train(
            model,
            14,
            lambda n: (
                seen.submit(freeze("0")) if n == 2 else None,
                model[0][1].running_mean.mul_(0.5) if n == 6 else None,
            ),
        )
    # At once, and in the receipt.
    told = seen.all(FreezeVerified)
    assert [(event.moved, event.steps) for event in told] == [(("0.1.running_mean",), 4), (("0.1.running_mean",), 10)]
    assert all("between two steps" in event.causes[0] for event in told)
    # Something else wrote it: it goes on being held.
    assert model[0][1].num_batches_tracked.item() == 2


def test_detail_and_summary_say_what_is_held() -> None:
    model = normed()
    with watched() as seen:
        train(model, 4, lambda n: seen.submit(freeze("0")) if n == 2 else None)
    tree = seen.state.tree
    numbers = {module.path: index for index, module in enumerate(tree.modules)}

    def said(path: str) -> list[str]:
        return [fact.spans[0][0] for fact in explain(seen.state, numbers[path]) if fact.label == "statistics"]

    assert said("0.1")[0].startswith("Until it is unfrozen")
    assert ": 2 modules" in said("0")[0]
    assert said("1") == said("2") == []
    assert summarised(seen.state)["freezes"]["holding_statistics"] == ["0.1", "0.3"]


def test_command_at_backward_finds_modes_script_has_set() -> None:
    model = normed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        step(model, optimizer)
        for number in range(4):
            if number in (1, 2):
                seen.submit(freeze("0") if number == 1 else lambda id_: SetMode(id_, "0", False))
            # No module is called: the boundary is where backward begins.
            optimizer.zero_grad()
            model[2].weight.square().mean().backward()
            optimizer.step()
        assert seen.all(CommandApplied)[1].text.startswith("put 0 in eval mode: 5 modules")
        assert not any(module.training for module in model[0].modules())
