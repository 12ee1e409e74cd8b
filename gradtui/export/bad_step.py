"""Where NaN or Inf appeared first, as JSON-ready data.

`phase` is where: `data` (the batch holds them), `load` (weights did before the first step), `forward`, `backward`, `optimizer`;
null where it was a forward or an update between `last_finite_step` and `step`, and nobody saw which. `module` is the one whose
operation gave them in forward (`until` another one where it may have been any up to that one; both null outside of any module),
`parameter` the one whose gradient or weights hold them, the one nearest to the loss of `others` + 1. `earliest_step` is `step`
where the step is known. Where it is not, NaN or Inf appeared between `earliest_step` and `step`: the steps before `step` were
not measured. `exact` is false where phase, module, parameter or step may be another one. Non-finite gradients of a step that a
loss scaler skipped do not count.
"""

from __future__ import annotations

from typing import Any

from gradtui.state.run_state import RunState
from gradtui.text import nonfinite_text


def bad_step(state: RunState) -> dict[str, Any] | None:
    """Return the first occurrence of the run, None if there was none."""
    event = state.bad_step
    if event is None:
        return None
    return {
        "step": event.step,
        "earliest_step": event.earliest or event.step,
        "seconds": event.at,
        "value": event.value,
        "phase": event.phase.value if event.phase is not None else None,
        "last_finite_step": event.last_finite,
        "module": event.module,
        "until": event.until,
        "is_input": event.is_input,
        "parameter": event.parameter,
        "others": event.others,
        "exact": event.exact,
        "in_words": nonfinite_text(event),
    }
