"""What holds the graphs that are alive although no backward of the step reached them. Pure."""

from __future__ import annotations

from gradtui.protocol.events import GraphHolderFound
from gradtui.run.state.run_state import RunState

_SHARE = 0.8
"""Share of the bytes of these graphs that a holder must keep, so that the graphs are known to be its own."""


def holder_of_most(state: RunState) -> GraphHolderFound | None:
    """Return what holds the living graphs; None if nothing is known to hold most of them."""
    graphs, held = state.graphs, state.evidence.graph_holder
    if graphs is None or held is None or held.since_step != graphs.since_step:
        return None
    return held if held.bytes >= _SHARE * graphs.bytes else None
