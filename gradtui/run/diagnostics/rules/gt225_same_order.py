"""GT225: a sampler that shuffles gives the samples in the same order in each epoch."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_EPOCHS = 3
"""A script may go through its data twice in an epoch, once of them to evaluate."""


def check(state: RunState) -> Iterator[Match]:
    """Match the DataLoader that training uses, once all of several epochs have begun in the same order."""
    loader = state.step_times.loader if state.step_times is not None else None
    if loader is None or loader.same_order < _EPOCHS:
        return
    is_distributed = loader.sampler == "DistributedSampler"
    yield Match(
        f"{loader.sampler} gave the samples in the same order in each of {loader.same_order} epochs",
        {"sampler": loader.sampler, "epochs": loader.same_order},
        is_exact=True,
        remedy="call sampler.set_epoch(epoch) before each epoch" if is_distributed else None,
    )


def _needs(state: RunState) -> str | None:
    times = state.step_times
    return None if times is not None and times.loader is not None else "no DataLoader gave the batches of a step"


RULE = Rule(
    "GT225",
    Level.WARNING,
    "the order of the samples is the same in each epoch",
    "batches of the same samples follow each other in each epoch: what shuffling is for, other batches, does not happen",
    "let the sampler go on with its random numbers: do not set the seed anew before each epoch",
    check,
    needs=_needs,
)
