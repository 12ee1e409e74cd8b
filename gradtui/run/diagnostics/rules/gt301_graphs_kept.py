"""GT301: graphs of past forwards stay alive, and memory grows."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.graph_holder import holder_of_most
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import size_text

_FORWARDS = 5
_STEPS = 10
"""Steps for which the oldest graph must have been alive: a script may keep a few on purpose."""
_SHARE = 0.2
"""Share of the steps since then whose graphs must be alive."""


def check(state: RunState) -> Iterator[Match]:
    """Match living graphs of most forwards since some step.

    Where a search of all objects ended early, or forwards were not recorded, their number follows from the bytes that
    the graph of one step keeps, unless what holds them is known.
    """
    graphs, saved = state.graphs, state.tree.saved
    if graphs is None or not graphs.forwards:
        return
    held = holder_of_most(state)
    by_size = graphs.bytes // saved.total if graphs.at_least and saved is not None and saved.total else 0
    forwards, steps = (
        max(graphs.forwards, held.forwards if held is not None else by_size),
        graphs.step - graphs.since_step,
    )
    if forwards < _FORWARDS or steps < _STEPS or forwards < _SHARE * steps:
        return
    by = f" in {held.holder}" if held is not None else ""
    about = "" if forwards == graphs.forwards and not graphs.at_least else "about "
    yield Match(
        f"the graphs of {about}{forwards:,} past forwards are alive since step {graphs.since_step:,}, and keep "
        f"{size_text(graphs.bytes)}{by}",
        {"forwards": forwards, "since_step": graphs.since_step, "bytes": graphs.bytes},
        first_step=graphs.since_step,
        is_exact=steps >= 2 * _STEPS,
    )


RULE = Rule(
    "GT301",
    Level.ERROR,
    "memory grows: graphs of past steps are kept",
    "a loss that is kept keeps its whole graph, with everything that backward would need",
    "keep numbers instead of tensors: total += loss.item(), or loss.detach()",
    check,
    samples=2,
    explains=frozenset({"GT305"}),
    needs=needs_sample,
)
