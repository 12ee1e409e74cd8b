"""GT301: graphs of past forwards."""

from __future__ import annotations

from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState


def with_graphs(forwards: int, *, since: int, step: int) -> RunState:
    state = run()
    apply(state, ev.GraphsAlive(1.0, step, forwards, False, since, 3 * 1024 * 1024))
    return state


def test_the_graphs_of_most_steps_are_alive() -> None:
    found = match("GT301", with_graphs(20, since=2, step=41))
    assert found.evidence == {"forwards": 20, "since_step": 2, "bytes": 3 * 1024 * 1024}
    assert found.first_step == 2


def test_a_few_graphs_and_those_of_few_steps() -> None:
    """A script keeps the last four, or one of every six."""
    assert matches("GT301", with_graphs(4, since=37, step=41)) == []
    assert matches("GT301", with_graphs(7, since=2, step=41)) == []


def test_a_graph_of_every_second_step() -> None:
    """Two optimizers step in turn, and the graphs of one are kept."""
    assert match("GT301", with_graphs(19, since=3, step=41)).evidence["forwards"] == 19
