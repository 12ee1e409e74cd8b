"""GT303: evaluation runs without no_grad, so autograd keeps what no backward will use."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import Phase
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_CALLS = 3


def check(state: RunState) -> Iterator[Match]:
    """Match calls in eval mode that autograd recorded, and that no backward followed, in a run that trains."""
    calls = state.calls.unused_eval_graphs if state.calls is not None else 0
    if calls < _CALLS or not state.micro_steps:
        return
    yield Match(
        f"{calls:,} forwards in eval mode kept a graph, and no backward followed",
        {"forwards": calls},
        is_exact=True,
    )


RULE = Rule(
    "GT303",
    Level.WARNING,
    "evaluation keeps graphs",
    "without torch.no_grad() autograd saves the activations of an evaluation too: memory and time for nothing",
    "evaluate under torch.no_grad() or torch.inference_mode()",
    check,
    needs=lambda state: None if state.phases[Phase.EVAL].count else "no evaluation ran",
)
