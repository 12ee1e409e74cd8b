from __future__ import annotations

from helpers.explained import reach_at
from helpers.fakes import coop_model, row_of
from helpers.states import coop_after

from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.tui.tree.tree_reach import (
    HIDDEN,
    NEVER,
    PARTLY,
    PASSES,
    STOPS,
    STOPS_TRAINS,
    TRAINS,
    TreeReach,
    frontier_words,
)

MODEL = coop_model()
TEXT, IMAGE = row_of(MODEL, "text_encoder"), row_of(MODEL, "image_encoder")


def reached(state: RunState) -> TreeReach:
    reach = TreeReach(state.tree)
    reach.update()
    return reach


def test_the_line_runs_where_backward_does() -> None:
    reach = reached(coop_after(steps=4))
    assert reach.mark(TEXT, trains=False) == PASSES
    assert reach.mark(TEXT, trains=True) == TRAINS
    assert reach.mark(row_of(MODEL, "text_encoder.text_projection"), trains=False) == PASSES
    assert (
        reach.mark(IMAGE, trains=False) == reach.mark(row_of(MODEL, "image_encoder.fc.weight"), trains=False) == NEVER
    )


def test_the_line_ends_where_backward_stops() -> None:
    reach = reached(coop_after(steps=4))
    assert reach.mark(row_of(MODEL, "ctx"), trains=True) == STOPS_TRAINS
    assert reach.mark(row_of(MODEL, "ctx"), trains=False) == STOPS


def test_module_that_backward_enters_in_part_says_so() -> None:
    assert reached(coop_after(steps=4)).mark(0, trains=True) == PARTLY


def test_hidden_is_marked_and_unknown_initially() -> None:
    state = coop_after(steps=4)
    reach_at(state, TEXT, "?")
    assert reached(state).mark(TEXT, trains=False) == HIDDEN
    new = RunState()
    apply(new, MODEL)
    assert {reached(new).mark(row, trains=True) for row in (0, TEXT, row_of(MODEL, "ctx"))} == {" "}


def test_the_marks_follow_what_is_measured() -> None:
    state = coop_after(steps=4)
    reach = reached(state)
    reach_at(state, TEXT, "-")
    assert reach.mark(row_of(MODEL, "ctx"), trains=False) == STOPS
    reach.update()
    assert reach.mark(TEXT, trains=False) == NEVER


def test_frame_names_frontier_as_there_is_room() -> None:
    state = coop_after(steps=4)
    line = reached(state).line
    assert frontier_words(state.tree, line, 80) == "backward stops at ctx: nothing before it needs a gradient"
    assert frontier_words(state.tree, line, 40) == "backward stops at ctx"
    assert frontier_words(state.tree, line, 20) == f"{STOPS} ctx"
    assert frontier_words(state.tree, line, 3) == ""
    assert frontier_words(state.tree, None, 40) == ""
