"""A warning where half precision is too coarse for an optimizer's updates; checked against what the optimizer then does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.toggling import unfreeze
from helpers.training import square_step
from helpers.watched import Watched, watched
from torch import nn

from gradtui.protocol.commands import Command, TrainOnly

X = torch.linspace(-1, 1, 24).view(6, 4)
Make = Callable[..., torch.optim.Optimizer]


def unfrozen(make: Make, dtype: torch.dtype, ask: Callable[[int], Command] | None = None) -> tuple[Watched, float]:
    """Unfreeze a layer of 0.5 and 0.75 after two steps; what was said, and the share of its elements that then moved."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to(dtype)
    with torch.no_grad():
        model[0].weight.copy_(torch.where(torch.arange(32).view(8, 4) % 2 == 0, 0.5, 0.75))
    model[0].requires_grad_(False)
    optimizer = make(model.parameters())
    before = model[0].weight.detach().clone()
    with watched() as seen:
        for _ in seen.steps(4, {2: ask or unfreeze("0.weight")}):
            square_step(model, optimizer, X.to(dtype))
    return seen, float((model[0].weight.detach() != before).float().mean())


CASES: dict[str, tuple[Make, torch.dtype, bool]] = {
    # Between 0.5 and 1 float16 values are 2^-11 = 4.9e-4 apart, bfloat16 values 2^-8 = 3.9e-3.
    "Adam, float16, below": (lambda p: torch.optim.Adam(p, lr=2e-7, eps=1e-4), torch.float16, True),
    "Adam, float16, above": (lambda p: torch.optim.Adam(p, lr=1e-2, eps=1e-4), torch.float16, False),
    "AdamW, bfloat16, below": (lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0), torch.bfloat16, True),
    "AdamW, bfloat16, above": (lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0), torch.bfloat16, False),
    "SGD, float16, below": (lambda p: torch.optim.SGD(p, lr=1e-5), torch.float16, True),
    "SGD, float16, above": (lambda p: torch.optim.SGD(p, lr=1e-1), torch.float16, False),
    "Adam, float32": (lambda p: torch.optim.Adam(p, lr=2e-7), torch.float32, False),
}


@pytest.mark.parametrize("name", CASES)
def test_stuck_elements_are_warned_of(name: str) -> None:
    make, dtype, is_warned = CASES[name]
    seen, moved = unfrozen(make, dtype)
    assert (moved < 0.5) is is_warned
    (said,) = seen.answers()
    assert ("rounded away" in said) is is_warned


def test_the_warning_has_the_numbers() -> None:
    (said,) = unfrozen(CASES["Adam, float16, below"][0], torch.float16)[0].answers()
    rms = ((0.5**2 + 0.75**2) / 2) ** 0.5
    assert f"a typical update is 2.0e-07, and float16 values near {rms:.1e} are {2.0**-11:.1e} apart" in said


def test_training_only_coarse_parameters_is_warned_of() -> None:
    seen, _ = unfrozen(CASES["Adam, float16, below"][0], torch.float16, lambda id_: TrainOnly(id_, "*weight"))
    (said,) = seen.answers()
    assert "rounded away" in said


def test_what_no_optimizer_has_is_not_judged() -> None:
    seen, _ = unfrozen(lambda p: torch.optim.Rprop(p, lr=1e-7), torch.float16)
    assert "warning" not in seen.answers()[0]
