"""Where curves draw the steps of a run that has returned to kept states."""

from __future__ import annotations

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.changes.branches import branches, place_of
from gradtui.run.state.run_state import RunState


def run(*returns: tuple[int, int]) -> RunState:
    state = RunState()
    for step, to_step in returns:
        apply(state, ev.ReturnedToState(0.0, step, 1, to_step, 0.1))
    return state


def places(state: RunState, *steps: int) -> list[int]:
    found = branches(state)
    return [place_of(step, found) for step in steps]


def test_without_return_each_step_has_its_own_place() -> None:
    assert places(run(), 0, 1, 700) == [0, 1, 700]


def test_after_return_steps_follow_kept_one() -> None:
    # Step 701 is the first one that was made from the weights of step 512.
    assert places(run((700, 512)), 512, 700, 701, 710) == [512, 700, 513, 522]


def test_return_to_later_course_follows_place() -> None:
    # Step 705 is the fifth one after 512. From 720 the run returns to it: what follows is the sixth.
    assert places(run((700, 512), (720, 705)), 705, 720, 721) == [517, 532, 518]
    # From 720 it returns to step 600, which was given up at 700.
    assert places(run((700, 512), (720, 600)), 600, 721) == [600, 601]


def test_state_after_return_is_on_new_course() -> None:
    state = RunState()
    for event in (
        ev.StateKept(1.0, 700, 1, "change", "", 10, 0.1),
        ev.ReturnedToState(2.0, 700, 9, 512, 0.1),
        ev.StateKept(3.0, 700, 2, "command", "", 10, 0.1),
        ev.ReturnedToState(4.0, 710, 2, 700, 0.1),
        ev.ReturnedToState(5.0, 720, 1, 700, 0.1),
    ):
        apply(state, event)
    assert places(state, 710, 711, 721) == [522, 513, 701]


def test_later_of_two_returns_counts() -> None:
    state = run((700, 512), (700, 100))
    assert places(state, 701) == [101]
    assert len(branches(state)) == 2
