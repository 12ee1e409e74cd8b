"""GT222: a loss gets probabilities where it expects logits, or logits where it expects logarithms of probabilities."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_OF_LOGITS = {
    "log_softmax": ("log_softmax (cross_entropy calls it)", "softmax"),
    "binary_cross_entropy_with_logits": ("binary_cross_entropy_with_logits", "sigmoid"),
}
"""By function: what it is, and what it applies itself. The other losses expect logarithms of probabilities."""


def check(state: RunState) -> Iterator[Match]:
    """Match each pair of a function and a loss that was found in the graph of a loss."""
    found = state.evidence.unfit_loss_inputs
    if found is None:
        return
    for kind, loss, module in found.operations:
        where = f"{kind} in {module}" if module else kind
        if loss in _OF_LOGITS:
            name, own = _OF_LOGITS[loss]
            message, remedy = f"{name} gets the output of {where}, and applies {own} itself", None
        else:
            expected = "logarithms of the probabilities of each sample"
            message = f"{loss} gets the output of {where}, and expects {expected}"
            remedy = f"give {loss} the output of log_softmax over the dimension of the classes"
        yield Match(
            message,
            {"values": kind, "loss": loss, "module": module},
            (module,) if module else (),
            first_step=found.step,
            is_exact=True,
            remedy=remedy,
            key=f"{kind} {loss} {module}",
        )


RULE = Rule(
    "GT222",
    Level.WARNING,
    "a loss gets values of another kind than it expects",
    "the loss is not that of the model's probabilities: its minimum is elsewhere, or there is none, or gradients are too small",
    "give the loss what comes before, and apply softmax or sigmoid only where you read predictions",
    check,
    needs=needs_sample,
)
