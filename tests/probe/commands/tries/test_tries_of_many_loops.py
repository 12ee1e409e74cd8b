"""Whatever comes of a try, in whatever loop and of whatever model: if nothing of it is kept, the run is the run without it."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
import torch
from helpers.examples import nightly
from helpers.loops import LOOPS, UNSUITED
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from zoo import SPECIMENS

from gradtui.protocol import events as ev
from gradtui.protocol.commands import TryChange
from gradtui.run.state.parts.tries import HELD_ASIDE

BATCHES, AT, TRIED = 100, 9, 10
MODELS = (
    "mlp", "conv_batchnorm", "dropout", "frozen_encoder_with_prompt", "lora", "shared_module", "weight_normalised",
    "checkpointed", "inplace_residual", "unused_branch",
)  # fmt: skip
SUITED = [each for each in LOOPS if "mlp" not in UNSUITED.get(each, ())]


class Enough(Exception):  # noqa: N818 - no error: the data are used up
    """Ends a loop at the same batch, however many it was given again."""


class Batches(Dataset[tuple[Tensor, ...]]):
    def __init__(self, specimen: Any) -> None:
        self.specimen = specimen

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        if index == BATCHES:
            raise Enough
        random.random()
        torch.rand(1)
        return self.specimen.batch(index)


class Held(Batches):
    """Batches that training does not use."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return super().__getitem__(5_000 + index)


def break_when_frozen(model: nn.Module, place: str) -> None:
    """Make forward or backward of a model raise while its first parameter is frozen."""
    first = next(each for each in model.parameters() if each.requires_grad)

    def check(*_: Any) -> None:
        if not first.requires_grad:
            raise RuntimeError("frozen")

    if place == "forward":
        model.register_forward_hook(check)
    else:
        model.register_forward_hook(
            lambda *called: called[-1].register_hook(check) and None if called[-1].requires_grad else None
        )


def trained(loop: str, name: str, *, tries: bool, fails: str = "") -> tuple[list[Any], Watched | None]:
    specimen = SPECIMENS[name]()
    torch.manual_seed(3)
    random.seed(3)
    if fails:
        break_when_frozen(specimen.model, fails)
    batches = iter(DataLoader(Batches(specimen), batch_size=None, shuffle=False))
    changes = tuple(f"freeze {path}" for path, each in specimen.model.named_parameters() if each.requires_grad)[:2]
    taken, held = 0, Held(specimen)

    def batch(_: int) -> tuple[Tensor, ...]:
        nonlocal taken
        taken += 1
        if taken == AT - 2:
            with torch.no_grad():
                for each in DataLoader(held, batch_size=None):
                    specimen.model(*each)
        if seen is not None and taken == AT:
            seen.submit(lambda id_: TryChange(id_, (*changes, "train-only *"), TRIED))
        return next(batches)

    with watched(budget=0.05) if tries else contextlib.nullcontext() as seen, contextlib.suppress(Enough):
        LOOPS[loop](specimen.model, batch, specimen.loss, 10_000)
    values = [
        {key: each.clone() for key, each in specimen.model.state_dict().items()},
        [each.requires_grad for each in specimen.model.parameters()],
        [each.training for each in specimen.model.modules()],
        torch.get_rng_state(),
        random.getstate(),
    ]
    return values, seen


def check(loop: str, name: str, fails: str = "") -> Watched:
    expected, _ = trained(loop, name, tries=False)
    found, seen = trained(loop, name, tries=True, fails=fails)
    assert seen.state.problems == {}
    for key, value in expected[0].items():
        assert torch.equal(found[0][key], value), key
    assert found[1:3] == expected[1:3]
    assert torch.equal(found[3], expected[3])
    assert found[4] == expected[4]
    answered = (*seen.all(ev.CommandApplied), *seen.all(ev.CommandRejected))
    assert sum(isinstance(each.command, TryChange) for each in answered) == 1
    return seen


def test_a_try_in_a_loop_with_momentum() -> None:
    (found,) = check("momentum", "dropout").all(ev.ChangeTried)
    assert [len(each.aside) for each in found.sides] == [HELD_ASIDE * (not each.ended) for each in found.sides]
    assert found.sides[1].aside


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", MODELS[:: nightly(2, 1)])
def test_a_try_of_many_models(name: str) -> None:
    check("adamw", name)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("loop", SUITED[:: nightly(2, 1)])
def test_a_try_in_many_loops(loop: str) -> None:
    check(loop, "mlp")


@pytest.mark.parametrize("loop", ["grad_scaler", "accumulation_clipped"])
@pytest.mark.parametrize("place", ["forward", "backward"])
def test_sides_that_fail_leave_no_trace(loop: str, place: str) -> None:
    sides = check(loop, "mlp", place).all(ev.ChangeTried)[0].sides
    assert [f"in {place}" in each.ended for each in sides] == [False, True, False, False]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("loop", SUITED[nightly(1, 0) :: nightly(2, 1)])
def test_failing_sides_leave_no_trace(loop: str) -> None:
    for place in ("forward", "backward"):
        check(loop, "mlp", place)
