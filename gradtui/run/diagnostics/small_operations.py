"""What the rules about operations and reads have in common. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.dataclass import dataclass
from gradtui.run.diagnostics.step_parts import EXACT_STEPS, MIN_LOST_S, needs_steps
from gradtui.run.state.findings import EvidenceValue
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.small_operations import SmallOperations, small_operations
from gradtui.run.state.time.step_shares import step_shares
from gradtui.run.text.units import duration_text, share_words

_MIN_STEP_S = 0.001
_OWN_CODE = 0.2
"""The share of the loop from which operations of the script's own code explain that this takes long."""


@dataclass(frozen=True)
class LostTime:
    """Time that goes to operations or reads, with what a rule says of it."""

    small: SmallOperations
    words: str
    """`87 % of the loop (3.5 s of 4.0 s)`"""
    evidence: dict[str, EvidenceValue]
    is_exact: bool
    explains: frozenset[str]


def lost_to_operations(state: RunState) -> Iterator[LostTime]:
    """Yield the small operations of a step, if most of the loop goes to them and that has cost a second or more."""
    small = small_operations(state)
    if small is not None and small.stand_out and small.a_step >= _MIN_STEP_S:
        yield from _lost(state, small, small.share)


def lost_to_waits(state: RunState) -> Iterator[LostTime]:
    """Yield the reads that wait for the device, if they hold up the loop and that has cost a second or more."""
    small = small_operations(state)
    if small is not None and small.waits_stand_out:
        yield from _lost(state, small, small.waited_share)


def _lost(state: RunState, small: SmallOperations, share: float) -> Iterator[LostTime]:
    shares = step_shares(state.step_times)
    if shares is None or share * shares.seconds < MIN_LOST_S:
        return
    lost = share * shares.seconds
    taken = f"{duration_text(lost)} of {duration_text(shares.seconds)}"
    evidence: dict[str, EvidenceValue] = {
        "share": round(share, 3),
        "seconds": round(lost, 3),
        "loop_seconds": round(shares.seconds, 3),
        "operations_a_step": round(small.operations, 1),
        "reads_a_step": round(small.reads, 1),
        "seconds_an_operation": round(small.each, 9),
        "steps": shares.steps,
    }
    if state.epoch_steps:
        epoch = lost / shares.steps * state.epoch_steps
        taken += f", {duration_text(epoch)} an epoch"
        evidence["seconds_an_epoch"] = round(epoch, 3)
    explains = frozenset({"GT710"}) if small.own_code >= _OWN_CODE or share == small.waited_share else frozenset[str]()
    yield LostTime(
        small, f"{share_words(share)} of the loop ({taken})", evidence, shares.steps >= EXACT_STEPS, explains
    )


def needs_counts(state: RunState) -> str | None:
    """Return why no rule about operations could match; None if operations of timed steps were counted."""
    return needs_steps(state) or (
        None if small_operations(state) is not None else "the operations of no step were counted"
    )
