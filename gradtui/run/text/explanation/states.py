"""Describe the states of parameters: what they mean, and why they have them. Pure."""

from __future__ import annotations

from gradtui.protocol.vocabulary import STATE_NAMES, ParameterState, Reach, StateReason
from gradtui.run.explanation.facts import Cause, RowState
from gradtui.run.text.explanation.backward import not_entered_clause
from gradtui.run.text.rows import rows_words
from gradtui.run.text.units import DASH, capitalized, plural
from gradtui.system.printable import printable

STATE_WORDS: dict[ParameterState, str] = {**STATE_NAMES, ParameterState.UNKNOWN: DASH}
"""The word for each state in the tree."""


_MEANINGS: dict[ParameterState, tuple[str, str, str]] = {
    ParameterState.TRAINED: (
        "gets a gradient, and its optimizer applies it",
        "",
        "Backward stores a gradient for it, and its optimizer (or the script itself) applies it.",
    ),
    ParameterState.ZERO: (
        "gradient exactly zero",
        "Its gradient is exactly zero: only weight decay or momentum can move it.",
        "It gets a gradient, and that gradient is exactly zero: only weight decay or momentum can move it.",
    ),
    ParameterState.UNREACHED: (
        "trainable, but no gradient comes",
        "Its .grad is None when the optimizer steps.",
        "It is trainable, but its .grad is None when the optimizer steps: forward does not use it, its output is detached, "
        "it runs under no_grad, or its gradient is cleared before the step.",
    ),
    ParameterState.FLOW_THROUGH: (
        "frozen; the gradient goes through, activations are kept",
        "Frozen: the gradient passes through its module.",
        "It is frozen, and the gradient passes through its module to something upstream that trains: backward computes the "
        "gradient of the module's input, but not of this tensor. Nothing is stored in .grad, but autograd keeps the "
        "activations that the gradient of the input needs.",
    ),
    ParameterState.CUT: (
        "frozen; nothing is computed or kept",
        "Frozen: backward never comes here, and no activations are kept.",
        "It is frozen, and backward never comes here: nothing upstream of it needs a gradient, or it runs under no_grad. "
        "Nothing is stored in .grad, and autograd keeps no activations for it.",
    ),
    ParameterState.ORPHAN: (
        "trainable, but no optimizer moves it",
        "No optimizer has it: no step of one moves it. If it gets a gradient, that keeps adding up.",
        "It is trainable but in no optimizer: no optimizer's step moves it. If it gets a gradient, that keeps adding up, "
        "because optimizer.zero_grad never clears it.",
    ),
    ParameterState.MOVED: (
        "frozen, yet changed",
        "Frozen, yet its values changed.",
        "It is frozen, yet its values changed. The cause may be a gradient from before the freeze with momentum or weight "
        "decay, an average of weights, or a write by the script itself.",
    ),
    ParameterState.NOT_FINITE: (
        "gradient or values are NaN or Inf",
        "Its gradient or its values hold NaN or Inf.",
        "Its gradient or its values hold NaN or Inf. An optimizer step spreads them further.",
    ),
    ParameterState.SKIPPED: (
        "the loss scaler skipped the step",
        "",
        "The loss scaler skipped the last step, because a gradient was not finite at the scale it used.",
    ),
    ParameterState.UNKNOWN: (
        "not known yet",
        "What happens to it is not known before a step is sampled.",
        "Its state is unknown: no step has been sampled yet, or the autograd graph does not show what happens to it.",
    ),
}
"""What each state means, in few words, in a sentence (empty where the word for the state says it), and in one or two."""
STATE_SUMMARIES = {state: summary for state, (summary, _, _) in _MEANINGS.items()}
STATE_MEANINGS = {state: meaning for state, (_, _, meaning) in _MEANINGS.items()}

CAUSES: dict[StateReason, str] = {
    StateReason.CLEARED: "backward stored the gradient, and .grad was cleared before the optimizer stepped",
    StateReason.NOT_CALLED: (
        "the module was not called, and the autograd graph does not show whether forward used the parameter"
    ),
    StateReason.NOT_USED: "no operation of the forward used it when the operations of a step were last recorded",
    StateReason.HIDDEN: (
        "the autograd graph has one operation for the whole module, as torch.compile and reentrant checkpoints record it"
    ),
    StateReason.ZERO_GRADIENT: (
        "the optimizer steps with a gradient of zeros, and momentum or weight decay changes the values; "
        "with .grad = None they would stay"
    ),
    StateReason.DECAY: (
        "the optimizer steps with a gradient of zeros, and weight decay changes the values; "
        "with .grad = None they would stay"
    ),
    StateReason.STALE_GRADIENT: ("the optimizer applies a gradient from before the freeze that is still in .grad"),
    StateReason.NO_GRADIENT: "the values change during the optimizer's step, although .grad is None",
    StateReason.OUTSIDE_STEP: "the values are written outside of the optimizer's step",
}
"""Clauses that follow a colon, for one parameter or several."""


def state_counts(states: str) -> list[tuple[ParameterState, str, str]]:
    """Count the tensors in each state, by their letters: the state, its count in words, and what the word means.

    The states that train come first, then those of frozen parameters, then the others.
    """
    counts = [(state, states.count(state.value)) for state in _COUNTED]
    found = [(state, count) for state, count in counts if count]
    return [
        (
            state,
            f"{STATE_WORDS[state]} {plural(count, 'tensor') if index == 0 else f'{count:,}'}",
            STATE_SUMMARIES[state] if state is not ParameterState.TRAINED else "",
        )
        for index, (state, count) in enumerate(found)
    ]


_COUNTED = (
    ParameterState.TRAINED, ParameterState.FLOW_THROUGH, ParameterState.CUT, ParameterState.NOT_FINITE,
    ParameterState.MOVED, ParameterState.ORPHAN, ParameterState.UNREACHED, ParameterState.ZERO, ParameterState.SKIPPED,
    ParameterState.UNKNOWN,
)  # fmt: skip


def state_text(state: RowState) -> str:
    """Return the state of a row in a few words: `trains since step 285`, `13 of 109 tensors train`."""
    if not state.tensors:
        return "no parameters"
    if state.kind is None:
        return f"{state.trainable:,} of {state.tensors:,} tensors train" if state.trainable else "frozen"
    if state.rows is not None:
        return rows_words(state.rows)
    return STATE_WORDS[state.kind] + (f" since step {state.since:,}" if state.since is not None else "")


def state_sentences(kind: ParameterState, cause: Cause) -> list[str]:
    """Return what a state means for its parameter, and its cause; empty if its word says everything."""
    why = cause_sentence(cause)
    if why is not None and kind in (ParameterState.FLOW_THROUGH, ParameterState.UNKNOWN):
        return [f"Frozen. {why}" if kind is ParameterState.FLOW_THROUGH else why]
    return [text for text in (_MEANINGS[kind][1], why) if text]


def cause_sentence(cause: Cause, *, is_followed: bool = False) -> str | None:
    """Explain why a parameter is in its state, as far as known; None if the meaning of the state says everything.

    With `is_followed` the path of its gradient is shown too, which says where the gradient ends and why.
    """
    if cause.evaluated_only:
        return "Its model was only evaluated: no optimizer owns a parameter of it, and no gradient reached one."
    if cause.skipped_steps:
        return f"The loss scaler has skipped {plural(cause.skipped_steps, 'step')} of this run so far."
    if is_followed and cause.reason is StateReason.NONE:
        return None
    if cause.passes_on:
        return f"The gradient passes on to {printable(cause.passes_on)}."
    clause = cause_clause(cause)
    return printable(f"{capitalized(clause)}.") if clause is not None else None


def cause_clause(cause: Cause) -> str | None:
    """Return why a parameter is in its state, or why no gradient comes, as a clause after a colon; None if unknown."""
    if cause.barriers is not None:
        return not_entered_clause(cause.barriers)
    if cause.reach == Reach.NOT_RUN.value:
        return "forward did not call its module" + (f" in step {cause.step:,}" if cause.step else "")
    if cause.reach in (Reach.ENDS.value, Reach.THROUGH.value):
        return "backward runs through its module, but not through an operation that uses this parameter"
    return CAUSES.get(cause.reason)
