"""Graphs that stay alive because a script holds on to them, in words. Pure."""

from __future__ import annotations

from gradtui.protocol.events import GraphsAlive
from gradtui.protocol.vocabulary import Phase
from gradtui.state.run_state import RunState
from gradtui.text import size_text


def living_words(event: GraphsAlive) -> str:
    """How many forwards' graphs are alive, since when, and what they keep."""
    least = "at least " if event.at_least else ""
    forwards = "1 forward" if event.forwards == 1 else f"{event.forwards:,} forwards"
    since = f"since step {event.since_step:,}" if event.since_step else "since before the first step"
    kept = f"{size_text(event.bytes)} of activations at step {event.step:,}"
    return f"the script holds the graphs of {least}{forwards} that no backward has reached, {since}: {kept}"


def graph_lines(state: RunState) -> list[str]:
    """What there is to say of them when the run has ended, and of evaluations that autograd recorded."""
    lines = [living_words(state.graphs)] if state.graphs is not None and state.graphs.forwards else []
    last = state.phases[Phase.EVAL].last
    if last is not None and last.held.activations:
        kept = f"{size_text(last.held.activations)} of activations"
        lines.append(f"evaluation did not run under torch.no_grad(): {kept} when a forward of it ended")
    return lines
