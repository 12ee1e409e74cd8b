"""GT108: backward runs through frozen modules to an input whose gradient is never read."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural, size_text

_SHARE = 0.1
"""Share of what autograd keeps, below which it is not worth a word."""
_STEPS = 2


def check(state: RunState) -> Iterator[Match]:
    """Match inputs that require a gradient in several sampled steps, where this keeps a good part of what autograd keeps."""
    found = state.unread_inputs
    if found is None or state.unread_input_steps < _STEPS or found.bytes < _SHARE * found.saved:
        return
    modules = plural(found.module_count, "module") if found.module_count else "operations outside of modules"
    yield Match(
        f"backward runs through {modules} without a trainable parameter upstream to an input that "
        f"requires a gradient that is never read: it keeps {size_text(found.bytes)} of {size_text(found.saved)}",
        {"modules": found.module_count, "bytes": found.bytes, "saved_bytes": found.saved},
        found.modules,
        is_exact=True,
        call="backward",
    )


RULE = Rule(
    "GT108",
    Level.WARNING,
    "backward computes the gradient of an input, and nothing reads it",
    "an input that requires a gradient makes autograd save activations in all modules after it, frozen ones too",
    "remove requires_grad_() of the input, or detach what the frozen modules compute",
    check,
    needs=needs_sample,
)
