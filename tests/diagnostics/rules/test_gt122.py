"""GT122: masked rows that move."""

from __future__ import annotations

import pytest
from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def with_rows(moved: int, *, by_hook: bool = True, is_deliberate: bool = True) -> RunState:
    state = run()
    apply(state, ev.RowsMasked(2.0, 9, "a.weight", 4, 3, 6, moved, by_hook, is_deliberate))
    return state


@pytest.mark.parametrize(("by_hook", "who"), [(True, "a hook"), (False, "the script")])
def test_masked_rows_move(by_hook: bool, who: str) -> None:
    one = match("GT122", with_rows(2, by_hook=by_hook))
    assert one.message == (
        f"{who} sets the gradient of 3 of 4 rows of a.weight to zero, and the optimizer still moves them: "
        "momentum 0.9 still applies"
    )
    assert one.level is None


def test_rows_of_units_that_may_be_dead() -> None:
    assert match("GT122", with_rows(5, is_deliberate=False)).level is Level.NOTE


@pytest.mark.parametrize("moved", [0, 1])
def test_rows_that_stay(moved: int) -> None:
    assert matches("GT122", with_rows(moved)) == []
