"""GT302: a loaded checkpoint stays in memory."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural, size_text


def check(state: RunState) -> Iterator[Match]:
    """Match living tensors of a checkpoint whose values the model has copied."""
    found = state.checkpoint
    if found is None or not found.tensors:
        return
    holder = f", in the global variable {found.holder}" if found.holder is not None else ""
    yield Match(
        f"{plural(found.tensors, 'loaded tensor')} with the shapes of the model's parameters are alive outside the model and "
        f"its optimizers, and keep {size_text(found.bytes)}{holder}",
        {"tensors": found.tensors, "bytes": found.bytes, "holder": found.holder},
        first_step=found.step,
        is_exact=True,
    )


def _needs(state: RunState) -> str | None:
    # The search for a checkpoint begins at this size.
    if sum(info.bytes for info in state.tree.parameters) < 1 << 20:
        return "the models have less than 1 MiB of parameters"
    return needs_sample(state)


RULE = Rule(
    "GT302",
    Level.WARNING,
    "a loaded checkpoint stays in memory",
    "load_state_dict() copies the values, so a checkpoint that is still referenced keeps a second copy of the weights",
    "delete the checkpoint after load_state_dict(): del checkpoint",
    check,
    needs=_needs,
)
