"""The functions of the reducer for what came of commands: receipts, verifications, and the peaks of profiled steps.

Pure except for the state that they update.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.changes.changes import is_repeated
from gradtui.run.state.run_state import RunState
from gradtui.run.text.effects import counted, receipt_text
from gradtui.run.text.freezes import verified_text

INTERVENTIONS_KEPT = 1_000
"""Also the number of receipts and verifications that are kept."""
_SETTLED = 2
"""Steps after a change from which on a step shows all of its effect: the first one may create optimizer state."""
_OF_PEAK, _MOST_OF_PEAK = 100, 1 << 17
"""A change of a profiled peak is noise up to a hundredth of the peak, and up to 128 KiB: Python allocates within a step too."""

_Kept = TypeVar("_Kept")


def freeze_verified(state: RunState, event: ev.FreezeVerified) -> None:
    _keep(state.verified, event.command, event)
    state.note(event, "moved" if event.moved else "verified", verified_text(event))


def receipt_taken(state: RunState, event: ev.ReceiptTaken) -> None:
    whole = _with_peaks(state, event)
    was_said = is_repeated(state, whole)
    _keep(state.receipts, event.command, whole)
    if not was_said:
        text = receipt_text(counted(state, event), state.forecast_of.get(event.command))
        state.note(event, "receipt" if event.held else "rejected", text)


def keep_peaks(state: RunState, profile: ev.StepMemoryProfiled) -> None:
    """Store the peaks of the profiled steps before and after the changes at one step boundary that lie between them.

    They are the peaks of a change where no allocator keeps any.
    """
    before, made = state.step_profile, state.interventions
    if before is None:
        return
    between = [each for each in made if before.step <= each.step < profile.step]
    boundaries = {each.step for each in between}
    earlier = [each.step for each in made if each.step < before.step]
    earlier += [change.step for change in state.model_changes[-1:]] or [0]
    if len(boundaries) != 1 or profile.step < max(boundaries) + _SETTLED or before.step < max(earlier) + _SETTLED:
        return
    apart = apart_of(state, profile)
    # What no command changes has changed meanwhile too: data, and what Python and the libraries hold.
    grown = apart - state.profile_apart if apart is not None and state.profile_apart is not None else 0
    for each in between:
        number = each.command.id
        _keep(state.profiled_peaks, number, (before.peak, profile.peak - grown))
        if number in state.receipts:
            state.receipts[number] = _with_peaks(state, state.receipts[number])


def apart_of(state: RunState, profile: ev.StepMemoryProfiled) -> int | None:
    """Return `StepMemory.apart` of a profiled step when its backward has ended; None where that is unknown."""
    last = state.phases[Phase.BACKWARD].last
    if last is None or last.step != profile.step or last.held.other is None:
        return None
    return last.held.other + (last.held.input or 0)


def _with_peaks(state: RunState, event: ev.ReceiptTaken) -> ev.ReceiptTaken:
    """Return a receipt with the peaks of profiled steps, if it has none.

    A peak depends on the batch as activations do: where those are not compared, no peak is.
    """
    effect, peaks = event.effect, state.profiled_peaks.get(event.command)
    if effect is None or peaks is None or effect.before is None or effect.after is None:
        return event
    if effect.before.activations is None or effect.before.peak is not None or effect.after.peak is not None:
        return event
    before, after = (replace(side, peak=peak) for side, peak in zip((effect.before, effect.after), peaks))
    noise = ("peak",) if abs(peaks[1] - peaks[0]) <= min(peaks[0] // _OF_PEAK, _MOST_OF_PEAK) else ()
    noise = (*effect.within_noise, *noise)
    return replace(event, effect=replace(effect, before=before, after=after, within_noise=noise))


def _keep(newest: dict[int, _Kept], command: int, value: _Kept) -> None:
    """Store a value by the id of its command, as the newest of a bounded number."""
    newest.pop(command, None)
    newest[command] = value
    if len(newest) > INTERVENTIONS_KEPT:
        del newest[next(iter(newest))]
