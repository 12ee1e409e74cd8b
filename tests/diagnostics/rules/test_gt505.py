"""GT505: clipping at nearly every step."""

from __future__ import annotations

import math

from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState


def state_of(*norms: float, threshold: float | None = 1.0) -> RunState:
    """The norms before clipping in the steps from 1 on."""
    state = run()
    for step, norm in enumerate(norms, 1):
        applied = norm if threshold is None else min(norm, threshold)
        apply(state, ev.GradientsMeasured(1.0, step, applied, None, None, norm, threshold))
    return state


def test_nearly_every_step_is_clipped() -> None:
    found = match("GT505", state_of(0.5, *[3.0] * 9, *[5.0] * 10))
    assert found.evidence == {"measured_steps": 20, "clipped_steps": 19, "median_norm": 5.0, "threshold": 1.0}
    assert (found.first_step, found.is_exact) == (2, True)


def test_fewer_steps_and_fewer_clipped_ones() -> None:
    assert matches("GT505", state_of(*[2.0] * 19)) == []
    assert matches("GT505", state_of(*[2.0] * 18, 0.5, 0.5)) == []
    assert matches("GT505", state_of(*[1.0] * 30)) == []


def test_only_the_newest_steps_count() -> None:
    assert matches("GT505", state_of(*[2.0] * 300, *[0.5] * 11)) == []
    found = match("GT505", state_of(*[0.5] * 300, *[2.0] * 200))
    assert (found.evidence["measured_steps"], found.first_step) == (200, 301)


def test_a_long_run() -> None:
    """Longer than the series are."""
    assert match("GT505", state_of(*[2.0] * 5_000)).evidence["measured_steps"] == 200


def test_clipping_at_infinity_and_at_a_tensor() -> None:
    """The first is how scripts ask for the norm alone; the second is unknown."""
    for threshold in (math.inf, None):
        state = state_of(*[2.0] * 30, threshold=threshold)
        assert matches("GT505", state) == []
        assert rule_named("GT505").needs(state) == "no measured step clipped the gradient by its norm"


def test_what_the_run_lacked() -> None:
    assert rule_named("GT505").needs(state_of(0.5)) is None
    assert rule_named("GT505").needs(run()) is not None
