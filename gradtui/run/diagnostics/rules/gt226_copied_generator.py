"""GT226: workers of a DataLoader draw the same random numbers, from copies of the data set's generator."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def check(state: RunState) -> Iterator[Match]:
    """Match the DataLoader that training uses, if its workers have copies of a generator that loading samples draws from."""
    loader = state.step_times.loader if state.step_times is not None else None
    if loader is None or not loader.copied_generator:
        return
    if loader.workers > 1:
        effect = (
            f"the {loader.workers} workers have copies of {loader.copied_generator}, and draw the same random numbers"
        )
        effect += "" if loader.is_persistent else ", the same ones again in each epoch"
    elif not loader.is_persistent:
        effect = f"the worker has a copy of {loader.copied_generator}, and draws the same random numbers in each epoch"
    else:
        return
    yield Match(
        effect,
        {"generator": loader.copied_generator, "num_workers": loader.workers},
        is_exact=True,
    )


def _needs(state: RunState) -> str | None:
    loader = state.step_times.loader if state.step_times is not None else None
    return None if loader is not None and loader.workers else "no worker process loaded the batches of a step"


RULE = Rule(
    "GT226",
    Level.WARNING,
    "workers draw the same random numbers",
    "samples get the same augmentations as those of other workers or of the epoch before: there are fewer different ones than "
    "it seems",
    "draw from the global generators, which PyTorch seeds in each worker and epoch, or make the generator in worker_init_fn, "
    "with torch.initial_seed()",
    check,
    needs=_needs,
)
