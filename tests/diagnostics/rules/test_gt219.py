"""GT219: checkpoints that do not recompute what forward did."""

from __future__ import annotations

from scripted_run import matches, run

from gradtui.protocol import events as ev
from gradtui.run.diagnostics import Match
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level


def found(event: ev.RecomputationDiffers | None) -> list[Match]:
    state = run()
    if event is not None:
        apply(state, event)
    return matches("GT219", state)


def test_random_numbers_and_buffers() -> None:
    random, buffers = found(ev.RecomputationDiffers(1.0, 2, ("b", "a"), ("a.drop",), ("a.norm",), 1))
    assert random.message == (
        "the recomputation of a, b draws other random numbers in a.drop than forward did: preserve_rng_state is False"
    )
    assert random.level is None
    assert buffers.level is Level.WARNING
    assert buffers.paths == ("a.norm",)
    assert buffers.message.startswith("a.norm updates its running statistics twice in each step")


def test_other_buffers() -> None:
    (buffers,) = found(ev.RecomputationDiffers(1.0, 2, (), (), ("a", "b"), 1))
    assert buffers.message.startswith("a, b write their buffers twice")


def test_nothing_that_differs() -> None:
    assert found(None) == []
