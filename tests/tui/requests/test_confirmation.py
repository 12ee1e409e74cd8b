"""Which toggles are sent at once, and which wait for a second press."""

from __future__ import annotations

import pytest
from helpers.fakes import Node, found
from helpers.scripted_runs import linear, run

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.free_memory import Shortage
from gradtui.run.state.run_state import RunState
from gradtui.tui.actions import ACTIONS
from gradtui.tui.panels.why import preview
from gradtui.tui.requests.confirmation import SECONDS, Confirmation, confirmation_for
from gradtui.tui.requests.freeze_choice import typed

FREEZE = next(action for action in ACTIONS if action.id == "toggle_trainable")
NET, A, B, SMALL = 0, 1, 2, 3
"""The root and its modules: `a` and `b` have 20 elements each, `small` has 2."""


def three(states: str = "TTTTT") -> RunState:
    small = Node("small", "Scale", (("weight", (2,)),))
    model = found(Node("Net", "Net", (), (linear("a"), linear("b"), small)))
    trainable = "".join("1" if letter == "T" else "0" for letter in states)
    return run(states, trainable, model=model, owned=range(5), reach="eeee", grad_modes="gggg", training="1111",
               called=(1, 2, 3, 4))  # fmt: skip


def host_with(state: RunState, *, available: int) -> None:
    apply(state, ev.DeviceSampled(1.0, 20, "host", *[None] * 8, host_available=available))


def asked_again(
    state: RunState,
    row: int | None,
    before: Confirmation | None = None,
    now: float = 0.0,
    request: str = "toggle_trainable",
) -> Confirmation | None:
    return confirmation_for(state, request, row, before, now)


@pytest.mark.parametrize(
    ("row", "waits"),
    [(NET, True), (A, True), (~0, True), (~4, False), (SMALL, False)],
    ids=["several modules", "half of what trains", "its weight", "2 of 42 elements", "a module of one tensor"],
)
def test_more_than_module_or_twentieth_waits(row: int, waits: bool) -> None:
    assert (asked_again(three(), row) is not None) == waits


def test_an_unfreeze_counts_likewise() -> None:
    state = three("CCTTC")
    for row, waits in ((A, True), (SMALL, True), (~4, True)):
        assert (asked_again(state, row) is not None) == waits, "2 of 20 elements are a tenth"
    freeze = asked_again(state, B)
    assert freeze is not None
    assert (freeze.trainable, freeze.forecast.stops) == (False, (2, 3))


def test_only_what_changes_counts() -> None:
    assert asked_again(three("TTTTT"), NET) is not None
    state = three("TTTTT")
    state.note_submitted(SetTrainable(1, "", False))
    wish = asked_again(state, SMALL)
    assert wish is None, "the pending freeze counts: nothing that is frozen now would be unfrozen"


def test_second_press_confirms_in_time() -> None:
    state = three()
    first = asked_again(state, A, now=5.0)
    assert first is not None
    assert asked_again(state, A, first, 5.0 + SECONDS) is None
    assert asked_again(state, A, first, 5.1 + SECONDS) is not None
    other = asked_again(state, B, first, 6.0)
    assert other is not None
    assert other.row == B


def test_press_that_would_now_do_opposite_asks_again() -> None:
    state = three()
    first = asked_again(state, A)
    apply(state, ev.ParametersClassified(2.0, 21, "CCTTT", "00111"))
    again = asked_again(state, A, first, 1.0)
    assert again is not None
    assert again.trainable


@pytest.mark.parametrize(("request_id", "keeps"), [("freeze_dropping", "drop"), ("freeze_offloading", "offload")])
def test_a_freeze_that_moves_optimizer_state_counts_likewise(request_id: str, keeps: str) -> None:
    state = three()
    first = asked_again(state, A, request=request_id)
    assert first is not None
    assert (first.trainable, first.state, first.forecast.stops) == (False, keeps, (0, 1))
    assert asked_again(state, SMALL, request=request_id) is None
    assert asked_again(state, A, first, 1.0, request=request_id) is None
    assert asked_again(state, A, first, 1.0) is not None, "the freeze that keeps the state is another request"
    assert asked_again(three("CCTTT"), A, request=request_id) is None, "nothing is left to freeze"


def test_small_unfreeze_that_does_not_fit_waits_too() -> None:
    state = three("TTTTC")
    assert asked_again(state, SMALL) is None
    host_with(state, available=16)
    assert asked_again(state, SMALL) is None, "its gradient takes 8 bytes, its momentum another 8"
    host_with(state, available=15)
    first = asked_again(state, SMALL)
    assert first is not None
    assert first.lacks == Shortage(16, True, 15), "what autograd keeps for it is not known"
    assert asked_again(state, SMALL, first, 1.0) is None
    shown = preview(state, first, FREEZE)
    assert shown.clauses[0] == shown.warning == "needs at least about 16 B more, and 15 B are free"
    (choice,) = [each for each in (typed(state, "unfreeze", "small"),) if not isinstance(each, str)]
    assert choice.change.startswith(f"{shown.warning} · gradients about +8 B")


def test_a_request_that_freezes_nothing_is_not_asked() -> None:
    for request in ("undo", "toggle_checkpointing", "pause"):
        assert asked_again(three(), NET, request=request) is None


def test_what_would_be_refused_is_not_asked() -> None:
    assert asked_again(three(), None) is None
    ended = three()
    apply(ended, ev.RunEnded(9.0, 20, 0, None))
    assert asked_again(ended, NET) is None
