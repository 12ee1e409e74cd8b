"""What is frozen is not said to have moved because a return has written the values of a kept state."""

from __future__ import annotations

import weakref

import pytest
from helpers.keeping_runs import Make, Run, trained
from helpers.toggling import freeze, unfreeze
from torch import Tensor
from torch.optim import Adam

from gradtui.protocol import events as ev
from gradtui.protocol.commands import KeepState, ReturnToState, SetRowsTrainable, VerifyFreeze
from gradtui.protocol.vocabulary import ParameterState
from gradtui.system.no_collection import no_collection

STEPS = 30


def back(number: int) -> ReturnToState:
    return ReturnToState(number, 6)


FREEZES: dict[str, dict[int, list[Make]]] = {
    "frozen by the script, unfrozen after the kept state": {6: [KeepState], 7: [unfreeze("frozen")], 12: [back]},
    "unfrozen with a state kept by itself": {6: [unfreeze("frozen")], 12: [back]},
    "frozen before the kept state": {2: [freeze("encoder")], 6: [KeepState], 12: [back]},
    "frozen before it, unfrozen after it": {2: [freeze("head")], 6: [KeepState], 8: [unfreeze("head")], 12: [back]},
    "frozen after it": {6: [KeepState], 8: [freeze("head")], 12: [back], 14: [freeze("head")]},
    "rows": {2: [lambda number: SetRowsTrainable(number, "head.weight", False, "0:2")], 6: [KeepState], 12: [back]},
}


@pytest.mark.parametrize("at", FREEZES.values(), ids=list(FREEZES))
def test_return_is_no_write_to_what_is_frozen(at: dict[int, list[Make]]) -> None:
    seen, _ = trained(Run(), {**at, STEPS - 2: [VerifyFreeze]}, STEPS)
    assert len(seen.all(ev.ReturnedToState)) == 1
    assert not [each.moved for each in seen.all(ev.FreezeVerified) if each.moved]
    assert not [each.text for each in seen.all(ev.CommandApplied) if "moved" in each.text]
    assert ParameterState.MOVED.value not in seen.letters().values()


def test_state_of_undone_unfreeze_is_freed() -> None:
    moments: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    class Reading(Run):
        def step(self) -> None:
            super().step()
            state = self.optimizer.state.get(self.model.frozen.weight, {})
            moments.extend(weakref.ref(value) for value in state.values())
            alive.append(sum(each() is not None for each in moments))

    with no_collection():
        trained(Reading(Adam), {6: [unfreeze("frozen")], 12: [back]}, 14)
    assert alive[11] > 0
    assert alive[12:] == [0, 0]


def test_write_of_script_after_return_is_still_found() -> None:
    at: dict[int, list[Make]] = {2: [freeze("head")], 6: [KeepState], 12: [back]}

    class Writing(Run):
        def step(self) -> None:
            super().step()
            if self.scheduler.last_epoch == 20:
                self.model.head.weight.data[0, 0] += 1

    run = Writing()
    seen, _ = trained(run, {**at, STEPS - 2: [VerifyFreeze]}, STEPS)
    (verified,) = [each.text for each in seen.all(ev.CommandApplied) if isinstance(each.command, VerifyFreeze)]
    assert "1 of 2 tensors moved: head.weight" in verified
