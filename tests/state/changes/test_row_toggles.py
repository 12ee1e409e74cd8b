"""A toggle of a row is its own inverse: it freezes what trains, and restores exactly that."""

from __future__ import annotations

import pytest
from helpers.fakes import Node, coop_model, coop_run, found, row_of
from helpers.scripted_runs import linear, run
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.freezes import FreezeInForce
from gradtui.run.reducer import apply
from gradtui.run.state.changes.toggles import Toggle, pending_parameters, restored, toggle_of
from gradtui.run.state.run_state import RunState
from gradtui.tui.panels.why import why
from gradtui.tui.requests.confirmation import confirmation_for
from gradtui.tui.requests.requests import REQUESTS, Refusal, command_for

NET = 0
ROOT = range(4)
"""`a.weight`, `a.bias`, `b.weight`, `b.bias`; the script has frozen both weights."""


def adapted(trainable: str, *in_force: FreezeInForce) -> RunState:
    """Return the state of a run whose script trains the biases alone, with these freezes of commands in force."""
    state = run("".join("T" if flag == "1" else "C" for flag in trainable), trainable)
    frozen = tuple(index for each in in_force for index in each.parameters)
    if in_force:
        apply(state, ev.FreezeStateChanged(1.0, 20, frozen, (), (), in_force))
    return state


def toggled(state: RunState, path: str = "", parameters: range = ROOT) -> Toggle | None:
    return toggle_of(state, path, parameters)


def test_toggle_freezes_if_anything_trains_or_will() -> None:
    model = coop_model()
    state = state_after(*coop_run(3))
    ctx = ~row_of(model, "ctx")
    everything, own = range(len(model.parameters)), range(ctx, ctx + 1)
    assert toggle_of(state, "", everything) == Toggle(False, everything)
    assert toggle_of(state, "ctx", own) == Toggle(False, own)
    assert toggle_of(state, "frozen", range(ctx + 1, ctx + 3)) == Toggle(True, range(ctx + 1, ctx + 3))
    unknown = RunState()
    apply(unknown, model)
    assert toggle_of(unknown, "", everything) is None


def test_the_second_press_restores_what_the_first_froze() -> None:
    assert toggled(adapted("0101")) == Toggle(False, ROOT)
    frozen = adapted("0000", FreezeInForce("", (1, 3)))
    assert toggled(frozen) == Toggle(True, (1, 3), restores=True)
    assert toggled(frozen, "a", range(2)) == Toggle(True, (1,), restores=True), "a part of what was frozen"
    assert toggled(adapted("0000")) == Toggle(True, ROOT), "commands have frozen nothing: all of it"


def test_before_answer_it_restores_what_first_will_freeze() -> None:
    state = adapted("0101")
    state.note_submitted(SetTrainable(1, "", False))
    assert toggled(state) == Toggle(True, [1, 3], restores=True)
    state.note_submitted(SetTrainable(2, "", True, restore=True))
    assert pending_parameters(state) == {0: False, 1: True, 2: False, 3: True}
    assert toggled(state) == Toggle(False, ROOT)


def test_the_script_s_own_changes_do_not_matter() -> None:
    """It trains one of two again, and gradtui has left that to it: the second press restores the other."""
    state = adapted("0100", FreezeInForce("", (3,)))
    assert toggled(state) == Toggle(True, (3,), restores=True)


def test_toggle_after_manual_change_freezes_training() -> None:
    state = adapted("0100", FreezeInForce("", (3,), is_divided=True))
    assert toggled(state) == Toggle(False, ROOT)
    frozen = adapted("0000", FreezeInForce("", (3,), is_divided=True), FreezeInForce("", (1,)))
    assert toggled(frozen) == Toggle(True, (1,), restores=True), "exactly what the last press froze"


def test_rows_frozen_singly_are_restored_together() -> None:
    in_force = (FreezeInForce("a", (1,)), FreezeInForce("b", (3,)))
    assert toggled(adapted("0000", *in_force)) == Toggle(True, (1, 3), restores=True)
    assert restored(in_force, "a", range(2)) == (1,)
    assert restored(in_force, "*.bias", {1, 3}) == (1, 3)
    assert restored(in_force, "a.weight", range(1)) == ()


@pytest.mark.parametrize("row", [NET, 1, ~1])
def test_what_it_would_do_is_what_key_sends(row: int) -> None:
    state = adapted("0000", FreezeInForce("", (1, 3)))
    make = command_for("toggle_trainable", state, row)
    assert not isinstance(make, Refusal)
    command = make(7)
    assert isinstance(command, SetTrainable)
    assert (command.trainable, command.restore) == (True, row >= 0), "the one bias is all of its row"
    assert REQUESTS["unfreeze_all"].command(7, "") == SetTrainable(7, "", True), "the user can ask for all"


def test_the_panel_says_so_before_the_press() -> None:
    state = adapted("0000", FreezeInForce("", (1, 3)))
    text = why(state, NET)
    assert "what was frozen in it" in text.heading[1][0]
    assert text.clauses[0] == "8 parameters"
    assert "2 tensors stay frozen as before" in text.clauses
    asked = confirmation_for(state, "toggle_trainable", NET, None, 0.0)
    assert (asked.forecast.starts, asked.stay) == ((1, 3), 2)


def test_the_indexes_follow_a_new_listing() -> None:
    state = adapted("0000", FreezeInForce("", (1, 3)))
    listed = found(Node("Net", "Net", (), (linear("new"), linear("a"), linear("b"))))
    before = (-1, -1, 0, 1, 2, 3)
    apply(state, ev.ModelsFound(2.0, 21, listed.models, listed.modules, listed.parameters, former_parameters=before))
    assert [each.parameters for each in state.tree.freezes.in_force] == [(3, 5)]
