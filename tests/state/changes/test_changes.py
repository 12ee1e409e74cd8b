from __future__ import annotations

from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command, Pause, SetTrainable, Undo, ZeroGradients
from gradtui.protocol.effects import Effect
from gradtui.run.reducer import apply
from gradtui.run.state.changes.changes import CHANGES_LISTED, ChangeStatus, changes
from gradtui.run.state.run_state import RunState


def applied(
    at: float, step: int, command: Command, text: str = "done", *, undone: int | None = None
) -> ev.CommandApplied:
    return ev.CommandApplied(at, step, command, text, (), undone=undone)


def freeze(number: int, path: str = "a") -> SetTrainable:
    return SetTrainable(number, path, False)


def unfreeze(number: int, path: str = "a") -> SetTrainable:
    return SetTrainable(number, path, True)


def test_changes_are_in_order_with_others_left_out() -> None:
    state = state_after(
        applied(1.0, 10, freeze(1)),
        ev.CommandRejected(2.0, 20, freeze(2), "why"),
        applied(3.0, 30, unfreeze(3)),
        applied(4.0, 40, Pause(4)),
        ev.CommandRejected(5.0, 50, Pause(5), "why not"),
    )
    state.note_submitted(freeze(6))
    state.note_submitted(Pause(7))
    found = [(change.command.id, change.step, change.status.value, change.text) for change in changes(state)]
    assert found == [
        (1, 10, "applied", "done"),
        (2, 20, "refused", "why"),
        (3, 30, "applied", "done"),
        (6, 0, "pending", ""),
    ]


def test_undo_marks_command_that_it_has_undone() -> None:
    state = state_after(
        *(applied(float(number), number, unfreeze(number)) for number in (1, 2, 3)),
        applied(4.0, 4, Undo(4), undone=3),
        applied(5.0, 5, Undo(5), undone=2),
        applied(6.0, 6, unfreeze(6)),
        # Gradients that were cleared cannot be brought back.
        applied(7.0, 7, ZeroGradients(7)),
        applied(8.0, 8, Undo(8), undone=6),
    )
    undone = [change.command.id for change in changes(state) if change.status is ChangeStatus.UNDONE]
    assert undone == [2, 3, 6]


def test_results_belong_to_their_command() -> None:
    receipt = ev.ReceiptTaken(3.0, 12, 1, "text", True, Effect())
    verified = ev.FreezeVerified(4.0, 20, 1, 2, 10, ())
    first, second = changes(state_after(applied(1.0, 10, freeze(1)), applied(2.0, 11, freeze(2)), receipt, verified))
    assert (first.receipt, first.verified) == (receipt, verified)
    assert (second.receipt, second.verified) == (None, None)


def test_last_receipt_of_command_replaces_one_before() -> None:
    receipts = [ev.ReceiptTaken(float(at), 12, 1, f"{at}", True, Effect()) for at in (3, 4)]
    (change,) = changes(state_after(applied(1.0, 10, freeze(1)), *receipts))
    assert change.receipt == receipts[1]


def test_freeze_of_undone_unfreeze_is_verified_beside_undo() -> None:
    verified = ev.FreezeVerified(4.0, 21, 1, 2, 10, ())
    unfrozen, undo = changes(state_after(applied(1.0, 10, unfreeze(1)), applied(2.0, 11, Undo(2), undone=1), verified))
    assert (unfrozen.verified, undo.verified) == (None, verified)


def test_verification_of_undone_freeze_stays_with_freeze() -> None:
    verified = ev.FreezeVerified(4.0, 20, 1, 2, 10, ())
    frozen, undo = changes(state_after(applied(1.0, 10, freeze(1)), verified, applied(5.0, 25, Undo(2), undone=1)))
    assert (frozen.verified, undo.verified) == (verified, None)


def test_the_list_is_bounded() -> None:
    count = CHANGES_LISTED + 7
    state = state_after(*(applied(float(number), number, freeze(number)) for number in range(1, count + 1)))
    assert [change.step for change in changes(state)] == list(range(8, count + 1))
    assert [change.step for change in changes(state, 2)] == [count - 1, count]


def test_receipts_and_verifications_are_bounded() -> None:
    state = RunState()
    for number in range(1_500):
        apply(state, ev.ReceiptTaken(1.0, 1, number, "", True))
        apply(state, ev.FreezeVerified(1.0, 1, number, 1, 10, ()))
    assert list(state.receipts) == list(state.verified) == list(range(500, 1_500))
