"""The part of a step that takes too much of the loop, for the rules about time. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.dataclass import dataclass
from gradtui.protocol.step_times import StepPart
from gradtui.run.state.findings import EvidenceValue
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.step_shares import PartShare, step_shares
from gradtui.run.text.units import duration_text, share_words

MIN_LOST_S = 1.0
"""Less than this is not worth a finding."""
_MIN_STEP_S = 0.001
"""Mean time of the part in a step: the steps of a toy are shorter than what a loader or an optimizer costs at least."""
EXACT_STEPS = 50
_WAITS_FOR_DEVICE = (StepPart.PREPARE, StepPart.OTHER)
"""Parts that are long where a read or a copy in them waits for a busy device."""


@dataclass(frozen=True)
class LongPart:
    """A part above its bar, with what a rule says of it."""

    share: PartShare
    a_step: float
    """Mean seconds in a step."""
    words: str
    """`87 % of the loop (3.5 s of 4.0 s)`"""
    evidence: dict[str, EvidenceValue]
    is_exact: bool
    """Whether there were enough steps not to ask for more samples."""


def long_part(state: RunState, part: StepPart) -> Iterator[LongPart]:
    """Yield a part whose share of the loop is above its bar, if it has cost a second or more."""
    shares = step_shares(state.step_times)
    most = next((each for each in shares.parts if each.part is part), None) if shares is not None else None
    if shares is None or most is None or not shares.stands_out(most) or most.seconds < MIN_LOST_S:
        return
    if part in _WAITS_FOR_DEVICE and state.device_load.waits_for_host is False:
        return
    a_step = shares.a_step(part)
    if a_step < _MIN_STEP_S:
        return
    words = f"{share_words(most.share)} of the loop"
    taken = f"{duration_text(most.seconds)} of {duration_text(shares.seconds)}"
    evidence: dict[str, EvidenceValue] = {
        "share": round(most.share, 3),
        "seconds": round(most.seconds, 3),
        "loop_seconds": round(shares.seconds, 3),
        "seconds_a_step": round(a_step, 6),
        "steps": shares.steps,
    }
    if state.epoch_steps:
        lost = a_step * state.epoch_steps
        taken += f", {duration_text(lost)} an epoch"
        evidence["seconds_an_epoch"] = round(lost, 3)
    yield LongPart(most, a_step, f"{words} ({taken})", evidence, shares.steps >= EXACT_STEPS)


def needs_steps(state: RunState) -> str | None:
    """Return why no rule about time could match; None if ten steps were timed."""
    return None if step_shares(state.step_times) is not None else "fewer than ten steps were timed"
