"""Freezing and unfreezing: equal to a script that does the same, holding still, and refused where it would break the run."""

# Modules, parameters and optimizers are more loosely typed in torch than a test uses them.
# mypy: disable-error-code="operator,union-attr,index,arg-type,assignment,attr-defined,misc,return-value"
# mypy: disable-error-code="no-any-return,no-untyped-call,unused-ignore,func-returns-value,dict-item"
from __future__ import annotations

import copy
import time
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel
from watched import Watched, watched
from zoo import SPECIMENS

from gradtui.probe.freeze_watch import FreezeWatch, Verdict
from gradtui.probe.host_copy import HostCopy
from gradtui.probe.interventions import _size_words, set_trainable
from gradtui.probe.module_tree import ModuleTree
from gradtui.probe.refusals import Refused, Training
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.events import (
    CommandApplied,
    CommandRejected,
    FreezeVerified,
    ModelsFound,
    OptimizersFound,
    ProbeFailed,
)
from gradtui.protocol.vocabulary import ParameterInfo

X = torch.linspace(-1, 1, 24).view(6, 4)
Make = Callable[..., torch.optim.Optimizer]


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def freeze(path: str) -> Callable[[int], SetTrainable]:
    return lambda id_: SetTrainable(id_, path, False)


def unfreeze(path: str) -> Callable[[int], SetTrainable]:
    return lambda id_: SetTrainable(id_, path, True)


def bits(model: nn.Module) -> dict[str, list[float]]:
    return {name: parameter.detach().view(-1).tolist() for name, parameter in model.named_parameters()}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, *, to_none: bool = True) -> None:
    optimizer.zero_grad(set_to_none=to_none)
    model(X).square().mean().backward()
    optimizer.step()


def answers(seen: Watched) -> list[str]:
    return [
        event.text if isinstance(event, CommandApplied) else event.reason
        for event in seen.events
        if isinstance(event, (CommandApplied, CommandRejected))
    ]


OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "foreach": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.01, foreach=True),
}


def scripted(
    base: nn.Module, make: Make, changes: dict[int, tuple[str, bool]], *, to_none: bool
) -> dict[str, list[float]]:
    """A training whose source freezes and unfreezes at the beginning of given steps."""
    model = copy.deepcopy(base)
    optimizer = make(model.parameters())
    for number in range(10):
        if number in changes:
            path, trainable = changes[number]
            for parameter in model.get_submodule(path).parameters():
                parameter.requires_grad_(trainable)
                parameter.grad = None
        step(model, optimizer, to_none=to_none)
    return bits(model)


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_toggle_at_a_step_is_the_same_script_to_the_bit(optimizer: str, to_none: bool) -> None:
    base, make = small(), OPTIMIZERS[optimizer]
    changes = {3: ("2", False), 6: ("2", True)}
    model = copy.deepcopy(base)
    with watched() as seen:
        made = make(model.parameters())
        for number in range(10):
            if number in changes:
                path, trainable = changes[number]
                seen.submit(lambda id_, p=path, t=trainable: SetTrainable(id_, p, t))
            step(model, made, to_none=to_none)
    assert bits(model) == scripted(base, make, changes, to_none=to_none)
    assert bits(model) != scripted(base, make, {}, to_none=to_none)
    assert [event.step for event in seen.all(CommandApplied)] == [3, 6]
    assert [event.parameters for event in seen.all(CommandApplied)] == [(2, 3), (2, 3)]


EVERY: dict[str, Make] = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
}


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_freeze_holds_still_under_every_optimizer(name: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 2, bias=False))
    if name == "SparseAdam":
        model = nn.Sequential(
            nn.Embedding(6, 4, sparse=True), nn.Linear(4, 2, bias=False), nn.Embedding(2, 2, sparse=True)
        )

    def loss() -> Tensor:
        if name != "SparseAdam":
            return model(X).square().mean()
        return (
            (model[0](torch.arange(6)) @ torch.ones(4, 2) + model[2](torch.zeros(6, dtype=torch.long))).square().mean()
        )

    parameters = [p for p in model.parameters() if name != "SparseAdam" or p is not model[1].weight]
    options = {"weight_decay": 0.01} if name in ("AdamW", "RMSprop", "NAdam", "RAdam", "ASGD") else {}

    with watched() as seen:
        optimizer = EVERY[name](parameters, **options)

        def closure() -> Tensor:
            optimizer.zero_grad(set_to_none=False)
            value = loss()
            value.backward()
            return value

        for _ in range(3):
            optimizer.step(closure)
        seen.submit(freeze("0"))
        optimizer.step(closure)
        held = model[0].weight.detach().clone()
        moving = model[2].weight.detach().clone()
        for _ in range(20):
            optimizer.step(closure)
    if name == "LBFGS":
        assert "LBFGS" in answers(seen)[0]
        assert model[0].weight.requires_grad
        return
    assert torch.equal(model[0].weight, held)
    assert not torch.equal(model[2].weight, moving)
    (verified,) = seen.all(FreezeVerified)
    assert (verified.parameters, verified.moved, verified.steps) == (1, (), 10)


def test_a_frozen_tensor_that_is_written_to_is_named() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(freeze("2"))
        for _ in range(12):
            step(model, optimizer)
            with torch.no_grad():
                model[2].bias.mul_(0.9)
    (verified,) = seen.all(FreezeVerified)
    assert (verified.parameters, verified.moved) == (2, ("2.bias",))
    assert seen.letters()["2.bias"] == "M"
    assert seen.state.log[-1].kind == "moved"


def test_a_toggle_waits_for_the_end_of_accumulation() -> None:
    model = small()
    micro_steps, step_of = 4, []
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(12):
            if number == 5:  # the second micro-step of the second step
                seen.submit(freeze("0"))
            model(X).square().mean().backward()
            step_of.append(model[0].weight.requires_grad)
            if number % micro_steps == micro_steps - 1:
                assert all(p.grad is not None for p in model.parameters()) == step_of[-1]
                optimizer.step()
                optimizer.zero_grad()
    assert step_of == [True] * 8 + [False] * 4
    assert [event.step for event in seen.all(CommandApplied)] == [2]


def test_a_toggle_never_falls_between_forward_and_backward() -> None:
    """A criterion is a module too; what is asked for while the model runs waits for the next step."""
    model, criterion = small(), nn.MSELoss()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            output = model(X)
            if not seen.all(CommandApplied):
                seen.submit(freeze("0"))
            loss = criterion(output, torch.zeros_like(output))
            assert model[0].weight.requires_grad == (not seen.all(CommandApplied))
            loss.backward()
            optimizer.step()
    assert [event.step for event in seen.all(CommandApplied)] == [1]


def test_a_toggle_within_a_closure_step_waits_for_the_next() -> None:
    model = small()
    seen_inside: list[bool] = []
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def closure() -> Tensor:
            optimizer.zero_grad()
            if len(seen_inside) == 1:
                seen.submit(freeze("0"))
            loss = model(X).square().mean()
            loss.backward()
            seen_inside.append(model[0].weight.requires_grad)
            return loss

        for _ in range(4):
            optimizer.step(closure)  # type: ignore[arg-type]
    assert seen_inside == [True, True, False, False]
    assert [event.step for event in seen.all(CommandApplied)] == [2]


def test_a_toggle_under_optimizers_that_step_within_backward() -> None:
    """Their steps are no boundary while backward still runs."""
    model = small()
    optimizers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in model.parameters()}

    def hook(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()
        if not seen.commands and not seen.all(CommandApplied) and len(rounds) == 2:
            seen.submit(freeze("2"))

    rounds: list[dict[str, list[float]]] = []
    with watched() as seen:
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(hook)
        for _ in range(5):
            model(X).square().mean().backward()
            rounds.append(bits(model))
    (applied,) = seen.all(CommandApplied)
    assert applied.step == 3 * len(optimizers)
    assert rounds[2]["2.weight"] == rounds[3]["2.weight"] == rounds[4]["2.weight"]
    assert rounds[3]["0.weight"] != rounds[4]["0.weight"]


def test_one_parameter_and_the_whole_model() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        for make in (freeze("0.bias"), freeze("0"), unfreeze(""), unfreeze("")):
            seen.submit(make)
        step(model, optimizer)
    assert answers(seen) == [
        "froze 0.bias: 1 tensor, 8 parameters",
        "froze 0: 1 tensor, 32 parameters",
        "unfroze the model: 2 tensors, 40 parameters",
        "the model is already trainable",
    ]


def test_a_tied_weight_is_toggled_by_either_name() -> None:
    specimen = SPECIMENS["tied_gpt"]()
    with watched() as seen:
        optimizer = torch.optim.SGD(specimen.model.parameters(), lr=0.1)

        def train() -> None:
            specimen.loss(specimen.model(*specimen.batch(0))).backward()
            optimizer.step()
            optimizer.zero_grad()

        train()
        seen.submit(freeze("lm_head.weight"))
        train()
        seen.submit(unfreeze("tok_emb"))
        train()
    assert [event.parameters for event in seen.all(CommandApplied)] == [(0,), (0,)]


# ---- unfreezing


def test_what_was_frozen_before_the_optimizer_was_made_joins_its_nearest_group() -> None:
    model = small()
    model[2].requires_grad_(False)
    with watched() as seen:
        groups = [{"params": model[0].parameters(), "lr": 0.2}, {"params": model[4].parameters(), "lr": 0.1}]
        optimizer = torch.optim.SGD(groups, momentum=0.9)
        step(model, optimizer)
        before = bits(model)
        seen.submit(unfreeze("2"))
        step(model, optimizer)
        step(model, optimizer)
    assert answers(seen) == ["unfroze 2: 2 tensors, 72 parameters; 2 joined SGD"]
    assert len(optimizer.param_groups) == 2
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 6
    assert bits(model)["2.weight"] != before["2.weight"]
    assert seen.letters()["2.weight"] == "T"
    assert sorted(seen.all(OptimizersFound)[-1].optimizers[0].parameters) == list(range(6))


def test_the_nearest_group_is_the_one_that_shares_most_of_the_path() -> None:
    model = nn.ModuleDict(
        {"encoder": nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}), "head": nn.Linear(4, 2)}
    )
    encoder, head = model["encoder"], model["head"]
    encoder["b"].requires_grad_(False)  # type: ignore[index]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: Tensor) -> Tensor:
            return head(encoder["b"](encoder["a"](x)))  # type: ignore[index,no-any-return]

    whole = Model()
    with watched() as seen:
        optimizer = torch.optim.AdamW(
            [{"params": head.parameters(), "lr": 0.5}, {"params": encoder["a"].parameters(), "lr": 0.1}]  # type: ignore[index]
        )
        step(whole, optimizer)
        seen.submit(unfreeze("parts.encoder.b"))
        step(whole, optimizer)
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 4]


def test_named_groups_keep_a_name_for_each_parameter() -> None:
    model = small()
    model[2].requires_grad_(False)
    with watched() as seen:
        optimizer = torch.optim.SGD([(n, p) for n, p in model.named_parameters() if p.requires_grad], lr=0.1)
        step(model, optimizer)
        seen.submit(unfreeze("2"))
        step(model, optimizer)
    (group,) = optimizer.param_groups
    assert group["param_names"] == ["0.weight", "0.bias", "4.weight", "4.bias", "2.weight", "2.bias"]
    assert len(group["params"]) == 6
    optimizer.state_dict()


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], object]] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, [lambda s: 0.9**s] * len(o.param_groups)),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda s: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4]),
    "ConstantLR": lr_scheduler.ConstantLR,
    "LinearLR": lr_scheduler.LinearLR,
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 10),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)], milestones=[3]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(o, 2), lr_scheduler.LinearLR(o)]),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedules_go_on_as_if_nothing_had_been_unfrozen(name: str) -> None:
    def rates(*, toggles: bool) -> list[list[float]]:
        model = small()
        model[2].requires_grad_(False)
        seen_rates = []
        with watched() as seen:
            groups = [{"params": model[0].parameters(), "lr": 0.2}, {"params": model[4].parameters(), "lr": 0.1}]
            optimizer = torch.optim.SGD(groups, momentum=0.9)
            scheduler = SCHEDULERS[name](optimizer)
            for number in range(8):
                if toggles and number in (2, 5):
                    seen.submit(unfreeze("2") if number == 2 else freeze("0"))
                step(model, optimizer)
                scheduler.step()  # type: ignore[attr-defined]
                seen_rates.append([float(group["lr"]) for group in optimizer.param_groups])
        assert len(seen.all(CommandApplied)) == (2 if toggles else 0)
        return seen_rates

    assert rates(toggles=True) == rates(toggles=False)


def test_the_optimizer_in_use_is_joined_not_one_of_an_earlier_stage() -> None:
    """A two-stage script that keeps its first optimizer: what is unfrozen must move in the second stage."""
    model = small()
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        for _ in range(3):
            step(model, first)
        model[:4].requires_grad_(False)
        second = torch.optim.Adam(model[4].parameters(), lr=0.01)
        for _ in range(30):
            step(model, second)
        before = bits(model)
        seen.submit(unfreeze("2"))
        step(model, second)
    assert "joined Adam" in answers(seen)[0]
    assert bits(model)["2.weight"] != before["2.weight"]


def test_without_an_optimizer_an_unfrozen_parameter_is_told_to_be_orphaned() -> None:
    model = small()
    model[2].requires_grad_(False)
    with watched() as seen:
        seen.submit(unfreeze("2"))
        model(X).square().mean().backward()
    assert "belong to no optimizer" in answers(seen)[0]
    assert model[2].weight.requires_grad


# ---- refusals


def refused(model: nn.Module, optimizers: list[torch.optim.Optimizer], make: Callable[[int], SetTrainable]) -> str:
    """Train, ask, train on; returns the answer after making sure that nothing was changed."""
    with watched() as seen:
        for number in range(4):
            for optimizer in optimizers:
                step(model, optimizer)
            if number == 1:
                flags = [p.requires_grad for p in model.parameters()]
                seen.submit(make)
    assert [p.requires_grad for p in model.parameters()] == flags
    (rejected,) = seen.all(CommandRejected)
    assert seen.all(CommandApplied) == []
    return rejected.reason


def test_the_last_trainable_parameter_is_not_frozen() -> None:
    model = small()
    model[:4].requires_grad_(False)
    answer = refused(model, [torch.optim.SGD(model[4].parameters(), lr=0.1)], freeze("4"))
    assert "last trainable parameter" in answer


def test_the_last_parameter_that_backward_reaches_is_not_frozen() -> None:
    specimen = SPECIMENS["unused_branch"]()
    model = specimen.model
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4):
            if number == 2:
                seen.submit(freeze("used"))
            specimen.loss(model(*specimen.batch(number))).backward()
            optimizer.step()
    assert "last trainable parameter" in answers(seen)[0]


def test_unknown_paths() -> None:
    model = small()
    assert "no module or parameter 'nine'" in refused(
        model, [torch.optim.SGD(model.parameters(), lr=0.1)], freeze("nine")
    )


def test_what_is_frozen_already() -> None:
    model = small()
    model[0].requires_grad_(False)
    answer = refused(model, [torch.optim.SGD(model.parameters(), lr=0.1)], freeze("0"))
    assert answer == "0 is already frozen"


def test_a_computed_weight_is_refused_and_its_originals_are_not() -> None:
    model = nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    answer = refused(model, [optimizer], freeze("0.weight"))
    assert "0.parametrizations.weight.original0 and 0.parametrizations.weight.original1" in answer
    with watched() as seen:
        step(model, optimizer)
        seen.submit(freeze("0.parametrizations.weight.original0"))
        step(model, optimizer)
        held = model[0].parametrizations.weight.original0.detach().clone()  # type: ignore[union-attr]
        step(model, optimizer)
    assert answers(seen)[0].startswith("froze")
    assert torch.equal(held, model[0].parametrizations.weight.original0)  # type: ignore[union-attr]


def test_a_lazy_parameter_without_a_shape_is_refused() -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 2), "lazy": nn.LazyLinear(2)})

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: Tensor) -> Tensor:
            return self.parts["used"](x)  # type: ignore[no-any-return]

    whole = Model()
    answer = refused(whole, [torch.optim.SGD(model["used"].parameters(), lr=0.1)], freeze("parts.lazy"))
    assert "no shape yet" in answer


def test_integers_cannot_be_trained() -> None:
    model = small()
    model.counts = nn.Parameter(torch.zeros(3, dtype=torch.long), requires_grad=False)
    answer = refused(
        model, [torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)], unfreeze("counts")
    )
    assert "floating point" in answer


def test_an_optimizer_behind_a_grad_scaler_is_not_emptied() -> None:
    body, head = small(), nn.Linear(2, 1)
    model = nn.Sequential(body, head)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    with watched() as seen:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        one, two = torch.optim.SGD(body.parameters(), lr=0.1), torch.optim.SGD(head.parameters(), lr=0.1)
        for number in range(4):
            if number == 2:
                seen.submit(freeze("1"))
            scaler.scale(model(X).square().mean()).backward()
            for optimizer in (one, two):
                scaler.step(optimizer)
            scaler.update()
    assert "GradScaler would raise" in answers(seen)[0]
    assert seen.state.step == 8


def test_one_optimizer_of_a_gan_is_not_emptied() -> None:
    generator, discriminator = small(), nn.Linear(2, 1)
    with watched() as seen:
        g, d = torch.optim.Adam(generator.parameters()), torch.optim.Adam(discriminator.parameters())
        for number in range(3):
            if number == 1:
                seen.submit(freeze("Linear"))
                seen.submit(freeze("Linear.bias"))
            discriminator(generator(X).detach()).square().mean().backward()
            d.step()
            d.zero_grad()
            discriminator(generator(X)).square().mean().backward()
            g.step()
            g.zero_grad()
    assert "without a trainable parameter" in answers(seen)[0]
    assert answers(seen)[1].startswith("froze Linear.bias")


def test_distributed_wrappers_are_refused() -> None:
    class DistributedDataParallel(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Tensor) -> Tensor:
            return self.module(x)  # type: ignore[no-any-return]

    for model in (DistributedDataParallel(small()), nn.Sequential(DistributedDataParallel(small()), nn.Linear(2, 1))):
        path = "0.module.0" if isinstance(model, nn.Sequential) else "module.0"
        answer = refused(model, [torch.optim.SGD(model.parameters(), lr=0.1)], freeze(path))
        assert "all ranks" in answer


def test_what_a_command_raises_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradtui.probe import interventions

    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(interventions, "set_trainable", broken)
    model = small()
    assert "it failed: ZeroDivisionError: oops" in refused(
        model, [torch.optim.SGD(model.parameters(), lr=0.1)], freeze("0")
    )


def test_a_freeze_says_what_the_optimizer_keeps_of_it() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.Adam(model.parameters())
        step(model, optimizer)
        for path in ("0", "2.bias"):
            seen.submit(freeze(path))
            step(model, optimizer)
    sizes = {
        path: sum(value.nbytes for p in parameters for value in optimizer.state[p].values())
        for path, parameters in {"0": [*model[0].parameters()], "2.bias": [model[2].bias]}.items()
    }
    count = model[2].bias.numel()
    assert answers(seen) == [
        f"froze 0: 2 tensors, 40 parameters; Adam keeps its {sizes['0']} B of state",
        f"froze 2.bias: 1 tensor, {count} parameter{'s' if count > 1 else ''}; Adam keeps its {sizes['2.bias']} B of state",
    ]


@pytest.mark.parametrize(
    ("size", "words"), [(1023, "1023 B"), (1 << 10, "1.0 KiB"), (3 << 19, "1.5 MiB"), (5 << 30, "5.0 GiB")]
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert _size_words(size) == words


def test_an_averaged_model_beside_the_trained_one_does_not_confuse_paths() -> None:
    model = small()
    averaged = AveragedModel(model)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4):
            step(model, optimizer)
            averaged.update_parameters(model)
            if number == 1:
                seen.submit(freeze("0"))
    assert answers(seen) == ["froze 0: 2 tensors, 40 parameters"]
    assert not model[0].weight.requires_grad


def test_the_script_may_set_a_flag_back() -> None:
    """A script that contends is shown, not fought."""
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(freeze("0"))
        step(model, optimizer)
        assert seen.state.tree.trainable.startswith("00")
        model.requires_grad_(True)
        for _ in range(11):
            step(model, optimizer)
    assert seen.state.tree.trainable == "111111"
    assert set(seen.letters().values()) == {"T"}
    # Nothing is said to have held still.
    assert seen.all(FreezeVerified) == []


# ---- what holding still means


@pytest.mark.parametrize("write", ["data", "set", "copy"])
def test_a_write_that_leaves_the_version_counter_alone_is_seen(write: str) -> None:
    """Weight clipping and averaged weights are usually written through `.data`."""
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(freeze("2"))
        for number in range(12):
            step(model, optimizer)
            if number == 5:
                version = model[2].bias._version
                if write == "data":
                    model[2].bias.data.clamp_(-0.01, 0.01)
                elif write == "set":
                    model[2].bias.data = model[2].bias.data * 0.5
                else:
                    model[2].bias.data[3].copy_(torch.tensor(9.0))
                assert model[2].bias._version == version
    (verified,) = seen.all(FreezeVerified)
    assert (verified.parameters, verified.moved) == (2, ("2.bias",))


def test_a_write_that_is_undone_is_a_write() -> None:
    """Weights swapped for averaged ones and back."""
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(freeze("2"))
        for number in range(12):
            step(model, optimizer)
            if number == 5:
                with torch.no_grad():
                    kept = model[2].bias.clone()
                    model[2].bias.zero_()
                    model[2].bias.copy_(kept)
    (verified,) = seen.all(FreezeVerified)
    assert verified.moved == ("2.bias",)


def test_a_tensor_that_is_frozen_again_belongs_to_the_later_freeze() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(18):
            for at, make in ((2, freeze("2")), (4, unfreeze("2.bias")), (6, freeze("2.bias"))):
                if number == at:
                    seen.submit(make)
            step(model, optimizer)
    told = [(event.command, event.step, event.parameters, event.moved) for event in seen.all(FreezeVerified)]
    assert told == [(1, 12, 1, ()), (3, 16, 1, ())]


def test_reading_and_moving_around_is_no_write() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(freeze("2"))
        for _ in range(12):
            step(model, optimizer)
            copy.deepcopy(model)
            model[2].weight.data = model[2].weight.data.clone()
            model.state_dict()
            model.eval()
            model.train()
    (verified,) = seen.all(FreezeVerified)
    assert (verified.parameters, verified.moved) == (2, ())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(7),
        torch.zeros(0, 3),
        torch.tensor(1.5),
        torch.zeros(3, 5, dtype=torch.bfloat16),
        torch.zeros(4, dtype=torch.complex64),
        torch.zeros(2, 3, dtype=torch.float64).t(),
        torch.zeros(10, 6)[::2, 1::2],
        torch.zeros(9)[1:].view(2, 4),
        torch.zeros(2, 4, 3, 3).to(memory_format=torch.channels_last),
    ],
    ids=["odd", "empty", "scalar", "bf16", "complex", "transposed", "strided", "offset", "channels last"],
)
def test_any_layout_is_held_to_the_bit(tensor: Tensor) -> None:
    parameter = nn.Parameter(
        tensor.clone(memory_format=torch.preserve_format) if tensor.is_contiguous() else tensor, False
    )
    watching = FreezeWatch(1, 0, [("p", parameter)])
    assert watching._held[0].checksum is not None
    assert watching.verdict() == Verdict(1, ())
    if parameter.numel():
        watching = FreezeWatch(1, 0, [("p", parameter)])
        last = tuple(size - 1 for size in parameter.shape)
        # One bit of one element: a negative zero.
        parameter.data[last] = -0.0 if not parameter.is_complex() else complex(0.0, -0.0)
        assert watching.verdict() == Verdict(1, ("p",))


def test_only_what_is_still_there_and_still_frozen_is_said_to_hold() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(freeze("0"))
        seen.submit(freeze("2"))
        step(model, optimizer)
        model[0].bias.requires_grad_(True)  # The script takes one back,
        seen.submit(unfreeze("2.bias"))  # the person another,
        model[2].weight = nn.Parameter(torch.ones(8, 8), requires_grad=False)  # and one is gone.
        optimizer.param_groups[0]["params"] = [p for p in optimizer.param_groups[0]["params"] if p.shape != (8, 8)]
        for _ in range(12):
            step(model, optimizer)
    (verified,) = seen.all(FreezeVerified)
    assert (verified.command, verified.parameters, verified.moved) == (1, 1, ())


def test_a_freeze_is_verified_though_the_model_has_changed_since() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(freeze("2"))
        step(model, optimizer)
        model.insert(0, nn.Linear(4, 4))
        for _ in range(12):
            step(model, optimizer)
            with torch.no_grad():
                model[3].bias.add_(1)
    assert len(seen.all(ModelsFound)) == 2
    (verified,) = seen.all(FreezeVerified)
    # Named as it was called when it was frozen.
    assert (verified.parameters, verified.moved) == (2, ("2.bias",))


def test_a_verdict_that_a_device_has_not_told_yet_is_asked_for_again() -> None:
    class Done:
        asked = 0

        def query(self) -> bool:
            self.asked += 1
            return self.asked > 2

    model, done = small(), Done()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(freeze("2"))
        step(model, optimizer)
        (watching,) = seen.probe.desk.watches
        copy = HostCopy(torch.zeros(0, dtype=torch.bool))
        copy._done = done  # type: ignore[assignment]
        watching._under_way = ([], copy)
        for _ in range(14):
            step(model, optimizer)
    (verified,) = seen.all(FreezeVerified)
    assert (verified.step, verified.steps, verified.parameters) == (13, 12, 2)


def test_watching_a_freeze_keeps_nothing_alive() -> None:
    parameter = nn.Parameter(torch.ones(3), requires_grad=False)
    watching = FreezeWatch(1, 0, [("p", parameter)])
    left = weakref.ref(parameter)
    del parameter
    assert left() is None
    assert watching.verdict() == Verdict(0, ())


# ---- what is left to train


def ask(
    model: nn.Module, optimizer: torch.optim.Optimizer, at: dict[int, list[Callable[[int], SetTrainable]]]
) -> Watched:
    """Train for ten steps and submit commands before given ones. A backward with nothing to compute would raise here."""
    with watched() as seen:
        for number in range(10):
            for make in at.get(number, []):
                seen.submit(make)
            step(model, optimizer)
    return seen


def test_a_teacher_that_nobody_trains_is_not_left_to_train() -> None:
    """A deep copy still requires gradients, though the script calls it under no_grad and no optimizer has it."""
    student = small()
    teacher = copy.deepcopy(student)
    with watched() as seen:
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for number in range(5):
            if number == 3:
                seen.submit(freeze("Sequential_2"))
            with torch.no_grad():
                target = teacher(X)
            optimizer.zero_grad()
            (student(X) - target - 1).square().mean().backward()
            optimizer.step()
    assert [model.name for model in seen.state.tree.models] == ["Sequential", "Sequential_2"]
    assert "last trainable parameter" in answers(seen)[0]
    assert student[0].weight.requires_grad


def test_what_was_just_unfrozen_does_not_count_before_it_has_had_a_gradient() -> None:
    """Under no_grad it never gets one, and a backward with nothing else left would raise an error in the script."""
    under_no_grad, prefix = SPECIMENS["under_no_grad"]().model, SPECIMENS["frozen_prefix"]().model
    for model in (under_no_grad, prefix):
        model.backbone.requires_grad_(False)
        inputs = SPECIMENS["frozen_prefix"]().batch(0)[0]
        with watched() as seen:
            optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
            for number in range(8):
                if number == 3:
                    seen.submit(unfreeze("backbone"))
                    seen.submit(freeze("head"))
                if number == 5:
                    seen.submit(freeze("head"))
                optimizer.zero_grad()
                model(inputs).square().mean().backward()
                optimizer.step()
        first, second, third = answers(seen)
        assert first.startswith("unfroze backbone")
        assert "last trainable parameter" in second
        assert "what was just unfrozen counts once" in second
        assert third.startswith("froze head") == (model is prefix)
        assert model.head.weight.requires_grad == (model is under_no_grad)


def test_to_freeze_and_unfreeze_what_backward_does_not_reach_makes_it_no_more_reached() -> None:
    model = SPECIMENS["under_no_grad"]().model
    inputs = SPECIMENS["under_no_grad"]().batch(0)[0]
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(6):
            if number == 3:
                for make in (freeze("backbone"), unfreeze("backbone"), freeze("head")):
                    seen.submit(make)
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
    assert [answer.split(":")[0] for answer in answers(seen)][:2] == ["froze backbone", "unfroze backbone"]
    assert "last trainable parameter" in answers(seen)[2]


def test_what_was_just_unfrozen_is_tried_only_when_its_own_optimizer_has_stepped() -> None:
    """Of a GAN: the critic steps several times before the generator's loss is computed again."""
    generator, critic = small(), nn.Linear(2, 1)
    generator[:4].requires_grad_(False)
    with watched() as seen:
        c = torch.optim.Adam(critic.parameters())
        g = torch.optim.Adam(generator[4].parameters())
        for number in range(24):
            if number == 7:
                seen.submit(unfreeze("Sequential.0"))
            if number in (10, 15):
                seen.submit(freeze("Sequential.4"))
            critic(generator(X).detach()).square().mean().backward()
            c.step()
            c.zero_grad()
            if number % 6 == 5:
                critic(generator(X)).square().mean().backward()
                g.step()
                g.zero_grad()
    first, second, third = answers(seen)
    assert first == "unfroze Sequential.0: 2 tensors, 40 parameters; 2 joined Adam"
    assert "what was just unfrozen counts once" in second
    assert third.startswith("froze Sequential.4")


def test_what_trained_before_counts_at_once_when_it_is_unfrozen() -> None:
    model = small()
    seen = ask(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        {2: [freeze("0")], 5: [unfreeze("0"), freeze("2"), freeze("4")], 7: [unfreeze("4"), freeze("0")]},
    )
    assert [answer.split(":")[0] for answer in answers(seen)] == [
        "froze 0", "unfroze 0", "froze 2", "froze 4", "unfroze 4", "froze 0",
    ]  # fmt: skip


def test_everything_but_one_may_be_frozen_before_the_first_step() -> None:
    model = small()
    seen = ask(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        {0: [freeze("0"), freeze("2"), freeze("4.bias"), freeze("4")]},
    )
    assert [event.step for event in seen.all(CommandApplied)] == [0, 0, 0]
    assert "last trainable parameter" in answers(seen)[3]


def test_parameters_of_no_model_count_as_left() -> None:
    """A learned temperature beside the model, in the same optimizer."""
    model, scale = small(), nn.Parameter(torch.ones(()))
    with watched() as seen:
        optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.1)
        for number in range(4):
            if number == 2:
                seen.submit(freeze(""))
            optimizer.zero_grad()
            (model(X) * scale).square().mean().backward()
            optimizer.step()
    assert answers(seen)[0].startswith("froze the model: 6 tensors")


def test_behind_a_grad_scaler_what_backward_does_not_reach_does_not_count() -> None:
    specimen = SPECIMENS["unused_branch"]()
    model, outside = specimen.model, nn.Linear(4, 1)
    with watched() as seen:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        one, two = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(outside.parameters(), lr=0.1)
        for number in range(4):
            if number == 2:
                seen.submit(freeze("UnusedBranch.used"))
            scaler.scale(outside(model(*specimen.batch(number))).square().mean()).backward()
            for optimizer in (one, two):
                scaler.step(optimizer)
                optimizer.zero_grad()
            scaler.update()
    assert "GradScaler would raise" in answers(seen)[0]


def test_an_optimizer_that_has_not_stepped_yet_is_not_emptied() -> None:
    """The generator's first step comes after the discriminator's; in between its boundary is crossed."""
    generator, discriminator = small(), nn.Linear(2, 1)
    with watched() as seen:
        d, g = torch.optim.Adam(discriminator.parameters()), torch.optim.Adam(generator.parameters())
        for number in range(3):
            discriminator(generator(X).detach()).square().mean().backward()
            if number == 0:
                seen.submit(freeze("Sequential"))
            d.step()
            d.zero_grad()
            discriminator(generator(X)).square().mean().backward()
            g.step()
            g.zero_grad()
    assert "without a trainable parameter" in answers(seen)[0]


def test_without_any_known_optimizer_the_models_own_parameters_are_what_counts() -> None:
    """The script updates its parameters by hand."""
    model = small()
    with watched() as seen:
        seen.submit(freeze("0"))
        seen.submit(freeze(""))
        model(X).square().mean().backward()
    assert answers(seen)[0].startswith("froze 0")
    assert "last trainable parameter" in answers(seen)[1]


# ---- which tensors a path names


def test_a_module_whose_only_weight_is_listed_elsewhere_is_toggled_through_it() -> None:
    """As `model.lm_head.requires_grad_(False)` in the script would."""
    specimen = SPECIMENS["tied_gpt"]()
    model = specimen.model
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4):
            if number == 1:
                seen.submit(freeze("lm_head"))
                seen.submit(freeze("tok_emb"))
            if number == 2:
                seen.submit(unfreeze("lm_head.weight"))
            specimen.loss(model(*specimen.batch(0))).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert answers(seen) == [
        "froze lm_head: 1 tensor, 272 parameters (tied to tok_emb.weight)",
        "tok_emb is already frozen",
        "unfroze lm_head.weight: 1 tensor, 272 parameters (tied to tok_emb.weight)",
    ]
    assert model.lm_head.weight.requires_grad


def test_a_shared_module_is_toggled_by_either_path() -> None:
    specimen = SPECIMENS["shared_module"]()
    with watched() as seen:
        optimizer = torch.optim.SGD(specimen.model.parameters(), lr=0.1)
        for number in range(3):
            if number == 1:
                seen.submit(freeze("second"))
                seen.submit(freeze("first.bias"))
            specimen.loss(specimen.model(*specimen.batch(0))).backward()
            optimizer.step()
    assert answers(seen) == [
        "froze second: 2 tensors, 72 parameters (tied to first.weight, first.bias)",
        "first.bias is already frozen",
    ]


def test_a_path_is_understood_when_models_have_come_or_torch_compile_has_wrapped() -> None:
    model, other = small(), nn.Linear(2, 1)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(freeze("Sequential.0.bias"))
        seen.submit(freeze("_orig_mod.2.bias"))
        step(model, optimizer)
        joined = torch.optim.SGD(other.parameters(), lr=0.1)
        for number in range(3):
            if number == 1:
                seen.submit(freeze("4.bias"))
                seen.submit(freeze("2"))
            other(model(X)).square().mean().backward()
            optimizer.step()
            joined.step()
    assert answers(seen) == [
        "froze 0.bias: 1 tensor, 8 parameters",
        "froze 2.bias: 1 tensor, 8 parameters",
        "froze Sequential.4.bias: 1 tensor, 2 parameters",
        "froze Sequential.2: 1 tensor, 64 parameters",
    ]


def test_a_name_is_no_prefix_of_another() -> None:
    model = nn.Sequential(OrderedDict(fc=nn.Linear(4, 4), fc1=nn.Linear(4, 4), fc10=nn.Linear(4, 2)))
    seen = ask(model, torch.optim.SGD(model.parameters(), lr=0.1), {1: [freeze("fc1"), freeze("f")]})
    assert answers(seen)[0] == "froze fc1: 2 tensors, 20 parameters"
    assert "no module or parameter 'f'" in answers(seen)[1]
    assert [p.requires_grad for p in model.parameters()] == [True, True, False, False, True, True]


def test_what_the_model_holds_now_is_toggled_not_what_it_held() -> None:
    """Between two examined steps the script may replace a part; the old one must not be frozen in its stead."""
    model = small()
    with watched(budget=1e-9) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(40):
            if number == 30:
                # Not even if searches for models have used up their share of the time.
                seen.probe.view._searched_ns = 10**18
                old = model[2]
                model[2] = nn.Linear(8, 8)
                optimizer.add_param_group({"params": model[2].parameters()})
                seen.submit(freeze("2"))
                seen.submit(freeze("0"))
            step(model, optimizer)
    assert [event.step for event in seen.all(CommandApplied)] == [30, 30]
    assert not model[2].weight.requires_grad
    assert old.weight.requires_grad
    # The optimizer still has the old one, so that it is shown too: as a model of its own.
    assert [len(found.parameters) for found in seen.all(ModelsFound)] == [6, 8]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("text_encoder.layr0.weight", "did you mean text_encoder.layer0.weight"),
        ("layer0", "did you mean text_encoder.layer0 or image_encoder.layer0"),
        ("bias", "did you mean text_encoder.layer0.bias or image_encoder.layer0.bias"),
        ("quite.another.thing", "'quite.another.thing'"),
    ],
)
def test_an_unknown_path_is_answered_with_those_that_come_near(path: str, hint: str) -> None:
    parts = {f"{name}_encoder": nn.Sequential(OrderedDict(layer0=nn.Linear(4, 4))) for name in ("text", "image")}
    model = nn.Sequential(OrderedDict(parts))
    seen = ask(model, torch.optim.SGD(model.parameters(), lr=0.1), {1: [freeze(path)]})
    assert hint in answers(seen)[0]
    assert answers(seen)[0].startswith(f"there is no module or parameter {path!r}")


def test_the_answer_to_an_unknown_path_is_quick_in_a_large_model() -> None:
    paths = (f"encoder.layers.{number}.attention.output.dense.weight" for number in range(60_000))
    tree = ModuleTree(parameters=tuple(ParameterInfo(path, (path,), (1,), "float32", 1, 4, 0) for path in paths))
    began = time.thread_time()
    with pytest.raises(Refused, match=r"did you mean encoder\.layers\.7\.attention\.output\.dense\.weight"):
        set_trainable(SetTrainable(1, "encoder.layers.7.attention.output.dense.weigth", False), tree, Training())
    assert time.thread_time() - began < 1


def test_a_module_without_parameters_is_said_to_have_none() -> None:
    model = small()
    assert refused(model, [torch.optim.SGD(model.parameters(), lr=0.1)], freeze("1")) == "1 has no parameters"


def test_the_whole_of_two_models_has_no_name() -> None:
    model, other = small(), nn.Linear(2, 1)
    both = nn.ModuleList([model, other])
    with watched() as seen:
        one, two = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
        del both
        for number in range(3):
            if number == 1:
                seen.submit(unfreeze(""))
            other(model(X)).square().mean().backward()
            one.step()
            two.step()
    assert answers(seen) == ["there is no module or parameter ''"]


# ---- more refusals


# FSDP2 changes a module's class to one with this base.
FSDPModule = type("FSDPModule", (), {})
FSDPLinear = type("FSDPLinear", (FSDPModule, nn.Linear), {})
Replica = type("Replica", (type("DistributedDataParallel", (nn.Sequential,), {}),), {})
Sharded = type("FullyShardedDataParallel", (nn.Sequential,), {})


@pytest.mark.parametrize(
    "model",
    [nn.Sequential(FSDPLinear(4, 2)), Replica(nn.Linear(4, 2)), Sharded(nn.Linear(4, 2))],
    ids=["fsdp2", "ddp", "fsdp"],
)
def test_wrappers_are_known_by_their_bases(model: nn.Module) -> None:
    answer = refused(model, [torch.optim.SGD(model.parameters(), lr=0.1)], freeze("0.bias"))
    assert "a toggle must happen on all ranks at once" in answer


def test_one_of_several_ranks_is_not_toggled_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts that average gradients themselves use no wrapper."""
    model = small()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    answer = refused(model, [torch.optim.SGD(model.parameters(), lr=0.1)], freeze("0"))
    assert answer.startswith("this is one of 4 ranks")
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    seen = ask(model, torch.optim.SGD(model.parameters(), lr=0.1), {1: [freeze("0")]})
    assert answers(seen)[0].startswith("froze 0")


def test_a_tensor_of_inference_mode_is_refused() -> None:
    model = small()
    with torch.inference_mode():
        model.table = nn.Parameter(torch.zeros(3), requires_grad=False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    assert "table was made in inference mode" in refused(model, [optimizer], unfreeze("table"))


def test_a_refusal_names_the_tensor() -> None:
    model = small()
    model.counts = nn.Parameter(torch.zeros(3, dtype=torch.int32), requires_grad=False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    assert "and counts is int32" in refused(model, [optimizer], unfreeze(""))


def test_old_style_weight_norm_is_told_by_its_originals() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        layer = torch.nn.utils.weight_norm(nn.Linear(4, 4))
    model = nn.Sequential(layer, nn.Linear(4, 2))
    answer = refused(model, [torch.optim.SGD(model.parameters(), lr=0.1)], freeze("0.weight"))
    assert answer == "0.weight is computed from 0.weight_g and 0.weight_v: toggle those instead"


def test_a_toggle_that_fails_half_way_changes_nothing() -> None:
    class Stubborn(nn.Parameter):
        def requires_grad_(self, requires_grad: bool = True) -> Tensor:  # type: ignore[override]
            if not requires_grad:
                raise RuntimeError("not me")
            return super().requires_grad_(requires_grad)  # type: ignore[no-any-return]

    model = small()
    model[2].bias = Stubborn(torch.zeros(8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        step(model, optimizer)
        optimizer.zero_grad()
        model(X).square().mean().backward()
        kept = model[2].weight.grad
        optimizer.step()
        seen.submit(freeze("2"))
        model(X)
        assert all(p.requires_grad for p in model.parameters())
        assert model[2].weight.grad is kept
    assert answers(seen) == ["it failed: RuntimeError: not me"]


# ---- gradients of before


def test_a_gradient_of_before_is_not_added_to_the_first_new_one() -> None:
    """The script froze by hand and left the gradient where it was."""
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        step(model, optimizer)
        model[2].requires_grad_(False)
        model[2].weight.grad = torch.full((8, 8), 7.0)
        optimizer.zero_grad = lambda set_to_none=True: None  # type: ignore[method-assign]
        model[4].weight.grad = model[4].bias.grad = None
        seen.submit(unfreeze("2"))
        model(X).square().mean().backward()
        fresh = model[2].weight.grad.clone()  # type: ignore[union-attr]
        model.zero_grad()
        model(X).square().mean().backward()
    assert torch.equal(fresh, model[2].weight.grad)  # type: ignore[arg-type]


def test_a_gradient_that_is_kept_as_zeros_is_let_go() -> None:
    """It would still move the weight, by momentum and weight decay."""
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
        for number in range(6):
            if number == 3:
                seen.submit(freeze("2"))
            optimizer.zero_grad(set_to_none=False)
            model(X).square().mean().backward()
            assert (model[2].weight.grad is None) == (number >= 3)
            optimizer.step()


# ---- answers


def test_a_toggle_whose_aftermath_fails_is_answered_once() -> None:
    """It was applied; what goes wrong in telling about it is no second answer."""
    model = small()
    with watched(may_fail=True) as seen:

        def broken(*arguments: object) -> None:
            raise ZeroDivisionError("oops")

        seen.probe.examiner.toggled = broken  # type: ignore[method-assign]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4):
            if number == 1:
                seen.submit(freeze("0"))
                seen.submit(freeze("2"))
            step(model, optimizer)
    assert answers(seen) == ["froze 0: 2 tensors, 40 parameters", "froze 2: 2 tensors, 72 parameters"]
    assert [failure.part for failure in seen.all(ProbeFailed)] == ["commands"]


def test_toggles_in_one_boundary_keep_their_order() -> None:
    model = small()
    orders = [freeze("0"), unfreeze("0.bias"), freeze("2"), freeze("0"), unfreeze("0"), freeze("nine"), unfreeze("2")]
    seen = ask(model, torch.optim.SGD(model.parameters(), lr=0.1), {4: orders})
    told = [event.command for event in seen.events if isinstance(event, (CommandApplied, CommandRejected))]
    assert told == list(range(1, len(orders) + 1))
    assert [answer.split(":")[0] for answer in answers(seen)] == [
        "froze 0", "unfroze 0.bias", "froze 2", "froze 0", "unfroze 0", "there is no module or parameter 'nine'", "unfroze 2",
    ]  # fmt: skip
    assert all(p.requires_grad for p in model.parameters())
    assert seen.state.pending == {}
    assert seen.state.tree.trainable == "111111"


def test_a_flag_that_the_script_sets_is_shown() -> None:
    """Gradual unfreezing by the script itself, without any command."""
    model = small()
    model[:4].requires_grad_(False)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        flags = []
        for number in range(4):
            if number == 2:
                model[2].requires_grad_(True)
            step(model, optimizer)
            flags.append(seen.state.tree.trainable)
    assert flags == ["000011", "000011", "001111", "001111"]
    assert seen.letters()["2.weight"] == "T"
    assert answers(seen) == []
