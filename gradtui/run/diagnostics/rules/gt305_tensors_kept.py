"""GT305: something holds more tensors with each step, or the graph of a past forward."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.events import KeptTensors
from gradtui.run.diagnostics.graph_holder import holder_of_most
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural, size_text

_AGE, _BYTES = 20, 1 << 20
"""Steps for which the graph of a forward must have lived, and the bytes that it must keep."""


def check(state: RunState) -> Iterator[Match]:
    """Match holders whose tensors grow in number, and graphs of a few forwards that something holds for long."""
    for kept in state.evidence.kept_tensors.kept if state.evidence.kept_tensors is not None else ():
        yield _of_tensors(state, kept)
    graphs, held = state.graphs, holder_of_most(state)
    if graphs is None or held is None or not graphs.forwards:
        return
    if state.step - graphs.since_step < _AGE or graphs.bytes < _BYTES:
        return
    yield Match(
        f"{held.holder} holds the {'graph of a forward' if graphs.forwards == 1 else 'graphs of forwards'} since step "
        f"{graphs.since_step:,}, which no backward reaches: {size_text(graphs.bytes)}",
        {"holder": held.holder, "forwards": graphs.forwards, "bytes": graphs.bytes},
        first_step=graphs.since_step,
        is_exact=True,
        level=None if held.of_module else Level.NOTE,
        key=f"graph {held.holder}",
    )


def _of_tensors(state: RunState, kept: KeptTensors) -> Match:
    since, step = (
        kept.since_step,
        state.evidence.kept_tensors.step if state.evidence.kept_tensors is not None else state.step,
    )
    # What is collected during an epoch may be freed at its end.
    epoch = state.epoch_steps
    outlives = kept.with_graph > kept.tensors // 2 or (epoch is not None and step - since > epoch)
    size = f"{plural(kept.tensors, 'tensor')} ({size_text(kept.bytes)})"
    more = f"{kept.per_step:,.1f}" if kept.per_step else size_text(round(kept.bytes_per_step))
    grows = f"{size}, {more} more with each step since step {since:,}"
    if not kept.holder:
        return Match(
            f"gradients with graphs keep {grows}",
            {"holder": None, "tensors": kept.tensors, "bytes": kept.bytes},
            first_step=since,
            is_exact=True,
            remedy="use torch.autograd.grad(..., create_graph=True), or set .grad to None after use, also of inputs",
            key="gradients",
        )
    graph = f", {kept.with_graph:,} of them with a graph" if kept.with_graph else ""
    return Match(
        f"{kept.holder} holds {grows}{graph}",
        {"holder": kept.holder, "tensors": kept.tensors, "bytes": kept.bytes, "with_graph": kept.with_graph},
        first_step=since,
        is_exact=True,
        level=None if outlives else Level.NOTE,
        key=kept.holder,
    )


RULE = Rule(
    "GT305",
    Level.WARNING,
    "tensors of past steps are kept",
    "what a list, a dict, an attribute or a gradient refers to stays in memory, and with a graph so does what made it",
    "keep numbers or detached copies of what you need, and empty the holder regularly",
    check,
    needs=needs_sample,
)
