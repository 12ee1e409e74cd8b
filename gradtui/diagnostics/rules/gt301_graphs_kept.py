"""GT301: graphs of past forwards stay alive, and memory grows."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.diagnostics.rule import Match, Rule
from gradtui.state.findings import Level
from gradtui.state.run_state import RunState
from gradtui.text import size_text

_FORWARDS = 5
_SHARE = 0.5
"""Share of the steps since the oldest graph whose graphs must be alive. A script that keeps a few on purpose frees others."""


def check(state: RunState) -> Iterator[Match]:
    """Match living graphs of most forwards since some step."""
    graphs = state.graphs
    if graphs is None or graphs.forwards < _FORWARDS:
        return
    steps = max(1, graphs.step - graphs.since_step)
    if graphs.forwards < _SHARE * steps:
        return
    least = "at least " if graphs.at_least else ""
    yield Match(
        f"the graphs of {least}{graphs.forwards:,} past forwards are alive since step {graphs.since_step:,}, and keep "
        f"{size_text(graphs.bytes)}",
        {"forwards": graphs.forwards, "since_step": graphs.since_step, "bytes": graphs.bytes},
        first_step=graphs.since_step,
    )


RULE = Rule(
    "GT301",
    Level.ERROR,
    "memory grows: graphs of past steps are kept",
    "a loss that is kept keeps its whole graph, with everything that backward would need",
    "keep numbers instead of tensors: total += loss.item(), or loss.detach()",
    check,
    samples=2,
)
