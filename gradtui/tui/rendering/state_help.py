"""The meaning of each parameter state, and why a parameter is in it, in one sentence each. Pure."""

from __future__ import annotations

from gradtui.protocol.vocabulary import ParameterState
from gradtui.state.model_records import is_evaluated_only
from gradtui.state.run_state import RunState
from gradtui.state.selectors import kept_for, model_of, state_of
from gradtui.text import cause_of, state_reason
from gradtui.tui.rendering.lines import printable

MEANINGS: dict[ParameterState, str] = {
    ParameterState.TRAINED: "Backward stores a gradient for it, and its optimizer (or the script itself) applies it.",
    ParameterState.ZERO: "It gets a gradient, and that gradient is exactly zero: only weight decay or momentum can move it.",
    ParameterState.UNREACHED: (
        "It is trainable, but its .grad is None when the optimizer steps: forward does not use it, its output is detached, "
        "it runs under no_grad, or its gradient is cleared before the step."
    ),
    ParameterState.FLOW_THROUGH: (
        "It is frozen, and the gradient passes through its module to something upstream that trains: backward computes the "
        "gradient of the module's input, but not of this tensor. Nothing is stored in .grad, while the activations that "
        "passing on needs are kept."
    ),
    ParameterState.CUT: (
        "It is frozen, and backward never comes here: nothing upstream of it needs a gradient, or it runs under no_grad. "
        "Nothing is stored in .grad, and autograd keeps no activations for it."
    ),
    ParameterState.ORPHAN: (
        "It is trainable but in no optimizer: it never moves, and optimizer.zero_grad never clears its gradient, which "
        "keeps adding up."
    ),
    ParameterState.MOVED: (
        "It is frozen, yet its values changed. A left-over gradient with momentum or weight decay does that, and so does an "
        "average of weights or a write by the script itself."
    ),
    ParameterState.NOT_FINITE: "Its gradient or its values hold NaN or Inf. A step with it spreads to whatever uses it.",
    ParameterState.SKIPPED: "The loss scaler skipped the last step, because a gradient was not finite at the scale it used.",
    ParameterState.UNKNOWN: (
        "Its state is unknown: no step has been sampled yet, or the autograd graph does not show what happens to it."
    ),
}


def why_so(state: RunState, index: int, *, chained: bool = False) -> str | None:
    """Explain why this parameter is in its state, as far as known; None if the meaning of the state says everything.

    With `chained` the path of its gradient is shown too, which says where the gradient ends and why.
    """
    tree, kind = state.tree, state_of(state.tree, index)
    if kind is ParameterState.UNKNOWN and is_evaluated_only(state, model_of(tree, tree.parameters[index].module)):
        return "Its model was only evaluated: no optimizer owns a parameter of it, and no gradient reached one."
    if kind is ParameterState.SKIPPED:
        count = state.skipped_steps
        return f"That was so for {count:,} step{'s' if count != 1 else ''} of this run so far." if count else None
    reason = cause_of(tree, index) or (None if chained else state_reason(tree, index))
    if reason is not None:
        return printable(f"{reason[0].upper()}{reason[1:]}.")
    if kind is ParameterState.FLOW_THROUGH and not chained:
        upstream = kept_for(tree, tree.parameters[index].module)
        return f"It passes on to {printable(tree.parameters[upstream].path)}." if upstream is not None else None
    return None
