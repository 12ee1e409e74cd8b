"""Why figures are estimates by the documented rules, and what to do instead of checkpoints in compiled code."""

from __future__ import annotations

from gradtui.protocol.commands import TraceStep
from gradtui.run.state.run_state import RunState

_BUDGET = "torch._functorch.config.activation_memory_budget"
"""In the source of torch._functorch.config: 0.0 keeps what checkpointing the whole compiled region would keep, 1.0, the
default, what is fastest."""


def compiled_budget(state: RunState) -> str:
    """Return in one line what saves activations where modules are compiled; empty where none are."""
    if not state.tree.compiled:
        return ""
    return (
        f"Compiled modules cannot be checkpointed: set {_BUDGET} to a number from 0 (least memory) to 1 (the default) "
        "before they are compiled."
    )


def why_by_rules(state: RunState) -> str:
    """Return why the planner has no step from which it could forecast."""
    operations = state.operations
    if state.has_compiled_code or state.tree.compiled:
        return "the script uses torch.compile, and gradtui records no step of compiled code"
    if operations is None:
        refused = next((each.reason for each in reversed(state.refused) if isinstance(each.command, TraceStep)), "")
        return f"no step was recorded: {refused}" if refused else "no step was recorded"
    return operations.missing or "several optimizers take turns, or the forward has too many operations"
