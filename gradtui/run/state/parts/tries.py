"""The changes that a try measures, as commands, and what is known of the tries of a run. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.protocol.codec import BadEntry, from_words, shown, words_of
from gradtui.protocol.commands import (
    Command,
    EndTry,
    SetCheckpointing,
    SetGroup,
    SetLearningRate,
    SetMode,
    SetRowsTrainable,
    SetTrainable,
    TrainOnly,
    TryChange,
)
from gradtui.protocol.tries import ChangeTried, TriedSide, TryEnded, TrySideBegan
from gradtui.run.state.parts.paired import LEAST, PairedDifference, paired_difference

_OF_PEAK, _MOST_OF_PEAK = 100, 1 << 18
"""A difference between two peaks is noise up to a hundredth of the peak, and up to 256 KiB: Python allocates memory too."""

ORIGIN = "a try"
"""Who sends the changes of a try, and their undos."""
BY_TRY = "try"
"""Why a state is kept and returned to by a try."""
MAX_STEPS, MAX_CHANGES = 10_000, 20
HELD_ASIDE = 8
"""Steps of each side, after those that train, on batches that training does not use."""
_TRIED = (SetTrainable, SetRowsTrainable, TrainOnly, SetCheckpointing, SetMode, SetGroup, SetLearningRate)
_WORDS = "freeze, unfreeze, train-only, checkpoint, set-lr and set-mode"


def commands_of(change: str) -> list[Command]:
    """Return the commands of a change that was typed: `freeze blocks.0; set-lr head 1e-4`. Their ids are 0.

    Raises:
        BadEntry: it is no command, or none that can be tried.
    """
    found: list[Command] = []
    for part in change.split(";"):
        try:
            # A selection may have spaces after its commas.
            typed = shlex.split(re.sub(r",\s+", ",", part))
        except ValueError as error:
            raise BadEntry(f"{part.strip()}: {error}") from None
        words = words_of(typed)
        if words["command"] == "set_group":
            words = {"optimizer": 0, "group": 0, **words}
        command = from_words(words, 0)
        if not isinstance(command, _TRIED):
            raise BadEntry(f"{part.strip()} cannot be tried: {_WORDS} can")
        found.append(command)
    return found


def change_of(commands: Sequence[Command]) -> str | None:
    """Return the change that a person would type for these commands; None if one of them cannot be tried."""
    parts = []
    for command in commands:
        if isinstance(command, TrainOnly):
            parts.append(f"train-only {command.selection}")
        elif isinstance(command, SetCheckpointing):
            parts.append(f"{'checkpoint' if command.on else 'keep-activations'} {command.path}")
        elif isinstance(command, SetTrainable):
            state = f" state={command.state}" if command.state != "keep" else ""
            parts.append(f"{'unfreeze' if command.trainable else 'freeze'} {command.path}{state}")
        else:
            return None
    return "; ".join(parts) or None


def objection_to_try(command: TryChange | EndTry) -> str | None:
    """Return why no run could carry out this command; None if one could."""
    if isinstance(command, EndTry):
        is_known = 0 <= command.side <= MAX_CHANGES
        return None if is_known else f"a side is 0 for none or the number of a change, not {shown(command.side)}"
    changes = command.changes
    if not LEAST <= command.steps <= MAX_STEPS:
        return f"a try takes {LEAST} to {MAX_STEPS:,} steps, not {shown(command.steps)}"
    if not 0 < len(changes) <= MAX_CHANGES:
        return f"a try is of 1 to {MAX_CHANGES} changes, not {len(changes)}"
    try:
        for change in changes:
            commands_of(change)
    except BadEntry as bad:
        return str(bad)
    return None


def chosen(keep: str, sides: Sequence[TriedSide]) -> int:
    """Return the index of the side that `TryChange.keep` says; that without a change if the other has not come to its end."""
    if keep == "better":
        found = [
            (each.mean, at)
            for at, each in enumerate(loss_differences(sides), 1)
            if each is not None and not each.is_noise and each.mean < 0 and not sides[at].ended
        ]
        return min(found)[1] if found else 0
    return int(keep == "change" and not sides[1].ended)


def loss_differences(sides: Sequence[TriedSide]) -> list[PairedDifference | None]:
    """Return by how much the loss of each change is higher than without it, in their order."""
    return [paired_difference(sides[0].losses, each.losses) for each in sides[1:]]


def aside_differences(sides: Sequence[TriedSide]) -> list[PairedDifference | None]:
    """Return by how much the loss of each change is higher on batches held aside. No step lies between two of them."""
    return [paired_difference(sides[0].aside, each.aside, are_independent=True) for each in sides[1:]]


def time_differences(sides: Sequence[TriedSide]) -> list[PairedDifference | None]:
    """Return by how many seconds a step of each change takes longer. The first step of a side is left out."""
    return [paired_difference(sides[0].seconds[1:], each.seconds[1:]) for each in sides[1:]]


def is_peak_noise(side: TriedSide, without: TriedSide) -> bool:
    """Return whether the peaks of two sides differ by no more than Python and the libraries may allocate meanwhile.

    Where an allocator keeps the peaks, they have nothing else.
    """
    if side.peak is None or without.peak is None or (side.peak_exact and without.peak_exact):
        return False
    return abs(side.peak - without.peak) <= min(without.peak // _OF_PEAK, _MOST_OF_PEAK)


def on_front(sides: Sequence[TriedSide]) -> frozenset[int]:
    """Return the indexes of the sides that no other one beats in loss, time and memory (the Pareto front).

    A difference that is noise counts as none. A side that ended early, or of which something is unknown, is on no front.
    """
    losses, times = [0.0, *map(_counted, loss_differences(sides))], [0.0, *map(_counted, time_differences(sides))]
    points = {
        at: (losses[at], times[at], sides[0].peak if is_peak_noise(side, sides[0]) else side.peak)
        for at, side in enumerate(sides)
        if not side.ended and losses[at] is not None and times[at] is not None and side.peak is not None
    }
    return frozenset(
        at
        for at, point in points.items()
        if not any(_beats(other, point) for other in points.values() if other != point)
    )


def _counted(difference: PairedDifference | None) -> float | None:
    return None if difference is None else 0.0 if difference.is_noise else difference.mean


def _beats(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(a <= b for a, b in zip(one, other))


MAX_TRIES = 100


@dataclass
class TriesRecord:
    """The tries of a run."""

    under_way: TrySideBegan | None = None
    asks: ChangeTried | None = None
    """The try that waits for the user's choice."""
    results: list[tuple[ChangeTried, TryEnded]] = field(default_factory=list)
    """The newest ones, the oldest first."""
    measured: ChangeTried | None = None
    """The newest one."""
    ended: dict[int, TryEnded] = field(default_factory=dict)
    """By the id of the command."""


@dataclass(frozen=True)
class TryProgress:
    """How far a try is."""

    side: int
    """From 1, which is the side without a change."""
    sides: int
    step: int
    """The step of the side that is under way."""
    steps: int
    change: str
    asks: bool = False
    """All sides are over, and the run waits for the user's choice."""


def progress_of(tries: TriesRecord, command: int, step: int) -> TryProgress | None:
    """Return how far the try with the id `command` is after so many steps of the run; None if it has not begun."""
    asks, began = tries.asks, tries.under_way
    if asks is not None and asks.command == command:
        count, last = len(asks.sides), asks.sides[-1]
        return TryProgress(count, count, len(last.losses), len(last.losses), last.change, asks=True)
    if began is None or began.command != command:
        return None
    done = min(began.steps, max(0, step - began.step) + 1)
    return TryProgress(began.side + 1, began.sides, done, began.steps, began.change)
