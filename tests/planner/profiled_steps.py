"""Training whose last step is profiled, in loops that clear the gradients at different places."""

from __future__ import annotations

import torch
from helpers.watched import Watched, watched
from torch import nn
from zoo import Batch, Loss

from gradtui.protocol.commands import TraceStep

STEPS = 4
CLEARED_FIRST, CLEARED_BEFORE_BACKWARD, ACCUMULATED, FILLED_WITH_ZEROS = (
    "first",
    "before backward",
    "accumulated",
    "zeros",
)
LOOPS = CLEARED_FIRST, CLEARED_BEFORE_BACKWARD, ACCUMULATED, FILLED_WITH_ZEROS
"""Where the gradients are cleared: before the forward, between forward and backward, after two micro-steps; and never, but
filled with zeros."""
BEGIN_WITH_GRADIENTS = CLEARED_BEFORE_BACKWARD, FILLED_WITH_ZEROS


def profiled_run(model: nn.Module, batch: Batch, loss: Loss, loop: str = CLEARED_FIRST) -> Watched:
    """Train a model with SGD, which has no state, and profile the last step."""
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], 0.01)
    with watched() as run:
        for step in range(STEPS):
            if step == STEPS - 1:
                run.commands.submit(lambda number: TraceStep(number))
            if loop == CLEARED_FIRST:
                optimizer.zero_grad()
            for _ in range(2 if loop == ACCUMULATED else 1):
                # As in most scripts, a name holds the batch until the next one.
                given = batch(step)
                value = loss(model(*given))
                if loop == CLEARED_BEFORE_BACKWARD:
                    optimizer.zero_grad()
                value.backward()
            optimizer.step()
            if loop in (ACCUMULATED, FILLED_WITH_ZEROS):
                optimizer.zero_grad(set_to_none=loop == ACCUMULATED)
    return run
