"""What is refused, with the reason, because it would break the run."""

from __future__ import annotations

import warnings

import pytest
import torch
from helpers.toggling import X, ask, freeze, refused, small, step, unfreeze
from helpers.watched import watched
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.optim.swa_utils import AveragedModel
from zoo import SPECIMENS

from gradtui.run.text import refusals


def test_last_parameter_that_backward_reaches_is_not_frozen() -> None:
    specimen = SPECIMENS["unused_branch"]()
    model = specimen.model
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in seen.steps(4, {2: freeze("used")}):
            specimen.loss(model(*specimen.batch(number))).backward()
            optimizer.step()
    assert "nothing would train" in seen.answers()[0]


def test_computed_weight_is_refused_unlike_its_originals() -> None:
    model = nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    answer = refused(model, [optimizer], freeze("0.weight"))
    assert "original0" in answer
    assert "original1" in answer
    with watched() as seen:
        step(model, optimizer)
        seen.submit(freeze("0.parametrizations.weight.original0"))
        step(model, optimizer)
        held = model[0].parametrizations.weight.original0.detach().clone()  # type: ignore[union-attr]
        step(model, optimizer)
    assert seen.answers()[0].startswith("froze")
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
    assert "without a trainable parameter" in seen.answers()[0]
    assert seen.answers()[1].startswith("froze Linear.bias")


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
        assert answer == refusals.FREEZE_UNDER_DDP


def test_what_a_command_raises_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradtui.probe.commands.freezes import requires_grad

    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(requires_grad, "apply", broken)
    model = small()
    assert "it failed: ZeroDivisionError: oops" in refused(
        model, [torch.optim.SGD(model.parameters(), lr=0.1)], freeze("0")
    )


def test_averaged_model_does_not_confuse_paths() -> None:
    model = small()
    averaged = AveragedModel(model)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4):
            step(model, optimizer)
            averaged.update_parameters(model)
            if number == 1:
                seen.submit(freeze("0"))
    assert seen.answers() == ["froze 0: 2 tensors, 40 parameters"]
    assert not model[0].weight.requires_grad


# FSDP2 changes a module's class to one with this base.
FSDPModule = type("FSDPModule", (), {})


FSDPLinear = type("FSDPLinear", (FSDPModule, nn.Linear), {})

Replica = type("Replica", (type("DistributedDataParallel", (nn.Sequential,), {}),), {})

Sharded = type("FullyShardedDataParallel", (nn.Sequential,), {})


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Replica(nn.Linear(4, 2)), "restart with DistributedDataParallel(…, find_unused_parameters=True)"),
        (Sharded(nn.Linear(4, 2)), "under FullyShardedDataParallel parameters are flattened"),
    ],
    ids=["ddp", "fsdp"],
)
def test_wrappers_are_known_by_their_bases(model: nn.Module, words: str) -> None:
    answer = refused(model, [torch.optim.SGD(model.parameters(), lr=0.1)], freeze("0.bias"))
    assert words in answer


def test_sharded_parameters_can_be_frozen() -> None:
    model = nn.Sequential(FSDPLinear(4, 2))
    seen = ask(model, torch.optim.SGD(model.parameters(), lr=0.1), {1: [freeze("0.bias")]})
    assert seen.answers()[0].startswith("froze 0.bias")


def test_one_of_several_ranks_is_not_toggled_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts that average gradients themselves use no wrapper."""
    model = small()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    answer = refused(model, [torch.optim.SGD(model.parameters(), lr=0.1)], freeze("0"))
    assert answer.startswith("this is one of 4 ranks")
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    seen = ask(model, torch.optim.SGD(model.parameters(), lr=0.1), {1: [freeze("0")]})
    assert seen.answers()[0].startswith("froze 0")


def test_a_tensor_of_inference_mode_is_refused() -> None:
    model = small()
    with torch.inference_mode():
        model.table = nn.Parameter(torch.zeros(3), requires_grad=False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    assert refused(model, [optimizer], unfreeze("table")) == refusals.inference_parameter("table")


def test_a_refusal_names_the_tensor() -> None:
    model = small()
    model.counts = nn.Parameter(torch.zeros(3, dtype=torch.int32), requires_grad=False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    assert "counts is int32" in refused(model, [optimizer], unfreeze(""))


def test_old_weight_norm_is_told_by_originals() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        layer = torch.nn.utils.weight_norm(nn.Linear(4, 4))
    model = nn.Sequential(layer, nn.Linear(4, 2))
    answer = refused(model, [torch.optim.SGD(model.parameters(), lr=0.1)], freeze("0.weight"))
    assert answer == "0.weight is computed from 0.weight_g and 0.weight_v: name those instead"


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
    assert seen.answers() == ["it failed: RuntimeError: not me"]


def step_in_backward(model: nn.Module, groups: list[list[nn.Parameter]]) -> None:
    """Each optimizer steps as soon as its last parameter has its gradient."""
    for group in groups:
        optimizer = torch.optim.SGD(group, lr=0.1)

        def apply(_: Tensor, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        group[-1].register_post_accumulate_grad_hook(apply)


@pytest.mark.parametrize("early", [True, False], ids=["before the first step", "later"])
@pytest.mark.parametrize("by_layer", [True, False], ids=["an optimizer per layer", "an optimizer per parameter"])
def test_nothing_joins_optimizers_stepping_in_backward(by_layer: bool, early: bool) -> None:
    """It would be moved while backward still needs it, and autograd raises an error at that."""
    model = small()
    model[2].requires_grad_(False)
    layers = [[model[0].weight, model[0].bias], [model[4].weight, model[4].bias]]
    with watched() as seen:
        step_in_backward(model, layers if by_layer else [[each] for layer in layers for each in layer])
        for number in range(6):
            if number == (0 if early else 3):
                seen.submit(unfreeze("2"))
                seen.submit(freeze("0"))
            if number == 4:
                # What has an optimizer of its own is no orphan.
                seen.submit(unfreeze("0"))
            model(X).square().mean().backward()
    refusal, froze, unfroze = seen.answers()
    assert ("optimizers may step within backward" if early else "optimizers step within backward") in refusal
    assert froze.startswith("froze 0")
    assert unfroze.startswith("unfroze 0")
    assert not model[2].weight.requires_grad
