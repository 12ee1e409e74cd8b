"""GT222: a loss that expects logits gets the output of softmax or sigmoid."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_LOSSES = {
    "log_softmax": "log_softmax (cross_entropy calls it) gets the output of {first}: softmax is applied twice",
    "binary_cross_entropy_with_logits": "binary_cross_entropy_with_logits gets the output of {first}: sigmoid is applied to it",
}


def check(state: RunState) -> Iterator[Match]:
    """Match each pair of functions that was found in the graph of a loss."""
    found = state.evidence.normalized_twice
    if found is None:
        return
    for first, second, module in found.operations:
        where = f"{first} in {module}" if module else first
        yield Match(
            _LOSSES[second].format(first=where),
            {"first": first, "second": second, "module": module},
            (module,) if module else (),
            first_step=found.step,
            is_exact=True,
            key=f"{first} {second} {module}",
        )


RULE = Rule(
    "GT222",
    Level.WARNING,
    "a loss that expects logits gets probabilities",
    "probabilities lie between 0 and 1, so as logits they never differ by more than 1: the loss cannot come near 0",
    "give the loss what comes before, and apply softmax or sigmoid only where you read predictions",
    check,
    needs=needs_sample,
)
