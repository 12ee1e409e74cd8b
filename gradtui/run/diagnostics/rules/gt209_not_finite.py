"""GT209: the first NaN or Inf, what it was made of, and where it came from."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradtui.protocol.events import NonFiniteCause, NonFiniteFound
from gradtui.protocol.vocabulary import Phase
from gradtui.run.diagnostics.batches import batch_evidence
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_norm
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.bad_steps import nonfinite_text

_REMEDIES = {
    Phase.DATA: "leave these samples out, or mend them before they reach the model",
    Phase.LOAD: "look at how the weights were initialised or loaded",
    Phase.OPTIMIZER: "the gradients were finite: lower the learning rate, or look at the optimizer's state and its dtype",
}
_ADD = "add a small number to the argument of this operation, or clamp it"
_DOMAIN = "clamp the argument of this operation to where it is defined"
_LARGE = "look at why the values grew: a learning rate, a scale or inputs that are too large"
_BY_CAUSE = {
    NonFiniteCause.ZERO_BY_ZERO: "add a small number to the divisor, or leave out what is divided by 0",
    NonFiniteCause.BY_ZERO: "add a small number to the divisor, or leave out what is divided by 0",
    NonFiniteCause.LOG_OF_ZERO: "use log_softmax or logsigmoid of the scores, or clamp the argument of log",
    NonFiniteCause.LOG_OF_NEGATIVE: _DOMAIN,
    NonFiniteCause.SQRT_OF_NEGATIVE: _DOMAIN,
    NonFiniteCause.FRACTIONAL_POWER: _DOMAIN,
    NonFiniteCause.BEYOND_ONE: _DOMAIN,
    NonFiniteCause.EXP_OVERFLOW: "subtract the maximum before exp, as softmax and logsumexp do, or clamp its argument",
    NonFiniteCause.OVERFLOW: _LARGE,
    NonFiniteCause.MASKED_ROW: "leave at least one element of each row unmasked, or leave out the rows that have none",
    NonFiniteCause.EMPTY_MEAN: "leave out the mean where there is nothing to average",
    NonFiniteCause.EMPTY_LOSS: "leave out batches without a target, or divide the sum by max(count, 1)",
    NonFiniteCause.SPREAD_OF_ONE: "leave out groups of one element, or use correction=0",
    NonFiniteCause.SQRT_SLOPE: _ADD,
    NonFiniteCause.POWER_SLOPE: _ADD,
    NonFiniteCause.LOG_SLOPE: "clamp the argument before log: torch.where after it does not stop the derivative",
    NonFiniteCause.ARC_SLOPE: "clamp the argument to a little less than 1",
}


_BY_OPERATION = {
    "Sqrt": NonFiniteCause.SQRT_SLOPE,
    "Pow": NonFiniteCause.POWER_SLOPE,
    "Log": NonFiniteCause.LOG_SLOPE,
    "Div": NonFiniteCause.BY_ZERO,
    "Exp": NonFiniteCause.EXP_OVERFLOW,
}
"""Where only the operation is known: the most frequent cause, for the remedy."""


def check(state: RunState) -> Iterator[Match]:
    """Match the first value of the run that was not finite."""
    event = state.bad_step
    if event is None:
        return
    yield Match(
        nonfinite_text(event) + _unknown(event),
        {
            "value": event.value,
            "phase": event.phase.value if event.phase is not None else None,
            "cause": event.cause.value if event.cause is not None else None,
            "last_finite_step": event.last_finite,
            "module": event.module,
            "parameter": event.parameter,
            "operation": event.operation,
            **batch_evidence(event.batches),
            "weights_stayed_finite": _stayed_finite(state, event),
        },
        tuple(path for path in (event.parameter, event.module) if path),
        first_step=event.earliest or event.step,
        is_exact=True,
        level=_level(state, event),
        remedy=_remedy(event),
    )


def _unknown(event: NonFiniteFound) -> str:
    """Say that the cause is not known, where one that could be known is not."""
    if event.cause is not None or event.is_input or event.phase not in (Phase.FORWARD, Phase.BACKWARD):
        return ""
    return "; what it was made of is not known" if event.operation is None else "; its values were not read"


def _remedy(event: NonFiniteFound) -> str | None:
    if event.lost_eps is not None:
        eps, dtype = event.lost_eps
        if not eps:
            return "give the optimizer an eps above 0"
        return f"keep the weights in float32, or give the optimizer an eps that {dtype} has, such as 1e-4"
    if event.cause is not None:
        return _by_cause(event, event.cause)
    if (
        event.operation is not None
        and (usual := _BY_OPERATION.get(event.operation.partition("Backward")[0])) is not None
    ):
        return _BY_CAUSE[usual]
    if event.phase is None or event.earliest is not None or (event.phase is Phase.OPTIMIZER and not event.exact):
        # Which step it was is not known.
        return "run it again with --pause-at-nan, which measures every step, to see where it begins"
    return _REMEDIES.get(event.phase)


def _by_cause(event: NonFiniteFound, cause: NonFiniteCause) -> str | None:
    lost = event.dtype == "float16" and cause in _OF_LOST_EPS
    more = "; a number such as 1e-8 that is added is 0 in float16" if lost else ""
    wider = "; float16 ends at 65,504" if event.dtype == "float16" and cause is NonFiniteCause.OVERFLOW else ""
    return f"{_BY_CAUSE[cause]}{more}{wider}" if cause in _BY_CAUSE else None


_OF_LOST_EPS = (
    NonFiniteCause.ZERO_BY_ZERO, NonFiniteCause.BY_ZERO, NonFiniteCause.LOG_OF_ZERO, NonFiniteCause.SQRT_SLOPE,
)  # fmt: skip
"""What a small number that is added should prevent."""


def _level(state: RunState, event: NonFiniteFound) -> Level | None:
    outcome = event.outcome
    if _is_left_out(state, event.step):
        return Level.NOTE
    if outcome is None or not outcome.weights_are_finite or _came_again(state, outcome.step):
        return None
    return Level.NOTE if outcome.left_out_by == "script" else Level.WARNING if not outcome.left_out_by else None


def _stayed_finite(state: RunState, event: NonFiniteFound) -> bool | None:
    outcome = event.outcome
    if outcome is None or (outcome.weights_are_finite and _came_again(state, outcome.step)):
        return None
    return outcome.weights_are_finite


def _came_again(state: RunState, step: int) -> bool:
    """Return whether the newest gradients are not finite, of a later step than this one."""
    norm, steps = state.gradient_norm.last, state.gradient_norm.steps
    return norm is not None and not math.isfinite(norm) and steps[-1] > step


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
    explains=frozenset({"GT210", "GT220"}),
    needs=needs_norm,
)
