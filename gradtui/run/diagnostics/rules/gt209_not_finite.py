"""GT209: the first NaN or Inf, and where it came from."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradtui.protocol.events import NonFiniteFound
from gradtui.protocol.vocabulary import Phase
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_norm
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text import nonfinite_text

_REMEDIES = {
    Phase.DATA: "leave these samples out, or mend them before they reach the model",
    Phase.LOAD: "look at how the weights were initialised or loaded",
    Phase.OPTIMIZER: "the gradients were finite: lower the learning rate, or look at the optimizer's state and its dtype",
}


def check(state: RunState) -> Iterator[Match]:
    """Match the first value of the run that was not finite."""
    event = state.bad_step
    if event is None:
        return
    yield Match(
        nonfinite_text(event),
        {
            "value": event.value,
            "phase": event.phase.value if event.phase is not None else None,
            "last_finite_step": event.last_finite,
            "module": event.module,
            "parameter": event.parameter,
            "operation": event.operation,
            "batch": event.batch[0] if event.batch is not None else None,
            "samples": ", ".join(map(str, event.samples)),
        },
        tuple(path for path in (event.parameter, event.module) if path),
        first_step=event.earliest or event.step,
        is_exact=True,
        level=Level.NOTE if _is_left_out(state, event.step) else None,
        remedy=_remedy(event),
    )


def _remedy(event: NonFiniteFound) -> str | None:
    if event.lost_eps is not None:
        return f"keep the weights in float32, or give the optimizer an eps that {event.lost_eps[1]} has, such as 1e-4"
    if not event.exact:
        return "run it again with --pause-at-nan, which measures every step, to see where it begins"
    return _REMEDIES.get(event.phase) if event.phase is not None else None


def _is_left_out(state: RunState, step: int) -> bool:
    """Return whether a GradScaler left out the step, and a step with this number or a later one had finite gradients."""
    norm, steps = state.gradient_norm.last, state.gradient_norm.steps
    return state.skipped_steps > 0 and norm is not None and math.isfinite(norm) and steps[-1] >= step


RULE = Rule(
    "GT209",
    Level.ERROR,
    "values are not finite",
    "NaN and Inf spread to everything that is computed with them, and a step with them overwrites the weights",
    "look at the operation where it began: a square root, logarithm or division near 0, or a step that was too large",
    check,
    explains=frozenset({"GT210"}),
    needs=needs_norm,
)
