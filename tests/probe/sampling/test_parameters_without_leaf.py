"""A parameter that is no leaf, since the script has written it with a gradient: torch warns of reading its `.grad`."""

from __future__ import annotations

import warnings

import torch
from helpers.watched import watched
from torch import nn

from gradtui.protocol.events import ProbeFailed


def _generated() -> list[str]:
    """Train a network that generates the weights of another one. Return the warnings."""
    torch.manual_seed(0)
    base, hyper = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)), nn.Linear(2, 9)
    base.requires_grad_(False)
    optimizer = torch.optim.SGD(hyper.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(24):
            optimizer.zero_grad()
            base[0].weight.detach_().copy_(hyper(torch.ones(2)).view(3, 3))
            assert not base[0].weight.is_leaf
            base(torch.linspace(-1, 1, 12).view(4, 3)).square().mean().backward()
            nn.utils.clip_grad_norm_(hyper.parameters(), 1.0)
            optimizer.step()
            if step % 8 == 7:
                with torch.no_grad():
                    base.eval()(torch.ones(1, 3))
                base.train()
    return [f"{each.filename}:{each.lineno}" for each in caught]


def test_gradtui_adds_no_warning() -> None:
    assert _generated() == []
    with watched(budget=1e6) as seen:
        assert _generated() == []
    assert [each for each in seen.events if isinstance(each, ProbeFailed)] == []
