"""GT218: the loss is divided twice by the number of accumulated batches: by the script and by a library."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_optimizer, optimizer_name, windows_by_optimizer
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_STEPS = 3


def check(state: RunState) -> Iterator[Match]:
    """Match accumulated losses that were divided twice by the usual number of backwards."""
    losses = state.calls.losses if state.calls is not None else ()
    ranks = state.process_group.ranks if state.process_group is not None else 1
    for each in windows_by_optimizer(state):
        length = each.usual_length
        known = [kind for kind in losses if (kind.optimizer, kind.applied) == (each.optimizer, length)]
        twice = [kind for kind in known if sum(math.isclose(number, length) for number in kind.divisors) > 1]
        steps = sum(kind.count for kind in twice)
        # One of the divisions may be by the number of processes.
        if length < 2 or steps < _STEPS or len(twice) < len(known) or ranks == length:
            continue
        yield Match(
            f"each loss of {optimizer_name(state, each.optimizer)} is divided by {length} twice, and a step sums {length} of "
            f"them: the gradient is 1/{length} of the mean",
            {"backwards_a_step": length, "divisor": math.prod(twice[0].divisors), "steps": steps},
            is_exact=True,
            call="backward",
            remedy=f"divide by {length} once: where Accelerator.backward or a Trainer divides the loss, pass it as it is",
            key=str(each.optimizer),
            optimizer=each.optimizer,
        )


RULE = Rule(
    "GT218",
    Level.WARNING,
    "the loss is divided twice by the number of accumulated batches",
    "the gradient is smaller by that number than that of one large batch, so steps of plain SGD are too short, and clipping "
    "and weight decay no longer fit",
    "divide the loss once by the number of backwards of a step",
    check,
    needs=needs_optimizer,
)
