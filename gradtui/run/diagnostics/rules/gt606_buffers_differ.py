"""GT606: buffers that the wrapper does not broadcast differ between ranks."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.ranks import divergence_match, needs_ranks, open_divergence
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import listed


def check(state: RunState) -> Iterator[Match]:
    """Match buffers whose bits differ."""
    found = open_divergence(state, "buffers")
    if found is not None:
        yield divergence_match(state, found, f"the buffers {listed(found.names)} differ")


RULE = Rule(
    "GT606",
    Level.NOTE,
    "buffers differ between ranks",
    "each rank evaluates with the statistics of its own batches, and the checkpoint has those of one rank",
    "keep broadcast_buffers=True, or convert the model with nn.SyncBatchNorm.convert_sync_batchnorm()",
    check,
    needs=needs_ranks,
)
