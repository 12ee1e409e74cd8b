"""What a rule says after a short training under the probe, in which every step is sampled unless the budget is smaller."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gradtui.run.diagnostics import Match
from gradtui.run.diagnostics.selection import rule_named
from helpers.watched import watched


def matches_after(rule: str, train: Callable[[], object], *, budget: float = 100.0) -> list[Match]:
    """Return the matches of the rule with this id after `train`."""
    torch.manual_seed(0)
    with watched(budget=budget) as seen:
        train()
    assert not seen.state.problems
    return list(rule_named(rule).check(seen.state))
