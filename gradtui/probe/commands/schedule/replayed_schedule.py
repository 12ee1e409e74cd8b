"""Keep the remaining entries of a schedule, check that the models have what they name, and apply some before a load.

A checkpoint that a script saved while an unfreeze was in force names more parameters than the optimizer that a resumed script
creates, and torch refuses to load it. Before the load, gradtui applies the entries up to the first after which each group of
the optimizer has as many parameters as in the checkpoint. Training thread only.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from torch.optim import Optimizer

from gradtui.probe.model import AddedParameters
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo
from gradtui.protocol.commands import (
    Command,
    Intervention,
    SetRowsTrainable,
    SetTrainable,
    TakeUpFreezes,
    TrainOnly,
    Undo,
)
from gradtui.protocol.schedule import Scheduled
from gradtui.run.state.tree.model_parts import Listing
from gradtui.run.state.tree.selection import NothingSelected, find
from gradtui.run.text import listed, plural, refusals

_TOGGLES = (SetTrainable, SetRowsTrainable, TrainOnly, TakeUpFreezes, Undo)
"""The commands that can change which parameters an optimizer has."""


class ReplayedSchedule:
    """The entries of a schedule in the order they take effect."""

    def __init__(self, entries: Iterable[Scheduled] = ()) -> None:
        self._left = deque(sorted(entries, key=lambda entry: (entry.step, entry.skipped)))
        self.total = len(self._left)
        self.unchecked = bool(self._left)
        """The paths in the entries have not been checked against the models yet."""

    @property
    def left(self) -> Sequence[Scheduled]:
        """The entries that have not taken effect."""
        return self._left

    def is_due(self, step: int) -> bool:
        """Return whether anything is due after `step` executed steps."""
        return self.unchecked or (bool(self._left) and self._left[0].step <= step)

    def steps_until_due(self, executed: int) -> int:
        """Return how many steps after the one following `executed` end before an entry is due."""
        return self._left[0].step - executed - 1 if self._left else sys.maxsize

    def put_off(self, steps: int) -> None:
        """Let the entries that are left take effect so many steps later."""
        if steps:
            self._left = deque(replace(entry, step=entry.step + steps) for entry in self._left)

    def take(self, step: int, skipped: int) -> Scheduled | None:
        """Remove and return the next entry if it is due after `step` executed steps, with `skipped` steps left out since."""
        if self._left and (self._left[0].step, self._left[0].skipped) <= (step, skipped):
            return self._left.popleft()
        return None

    def take_first(self, count: int) -> list[Scheduled]:
        """Remove and return the next `count` entries, whenever they are due."""
        return [self._left.popleft() for _ in range(count)]

    def unreached_text(self, step: int) -> str:
        """Return which entries a run that ends at a step has not reached. There are some."""
        count, next_step = f"{len(self._left)} of {self.total} entries", self._left[0].step
        return f"{count} never reached: the run ended at step {step:,}, the next one is for step {next_step:,}"

    def objection(self, tree: Listing) -> str | None:
        """Return why the first entry that names something unknown cannot be applied; None if there is none.

        An entry recorded for models that were found during training (`late`) is not checked before it is due.
        """
        self.unchecked = False
        for entry in self._left:
            selection = getattr(entry.command, "selection", getattr(entry.command, "path", None))
            if entry.late or not isinstance(entry.command, Intervention) or not isinstance(selection, str):
                continue
            try:
                find(selection, tree)
            except NothingSelected as nothing:
                return f"{entry.title}: {nothing}"
        return None


def saved_sizes(state: Any) -> list[int] | None:
    """Return how many parameters each group of a saved state has; None if it is not the state of an optimizer."""
    groups = state.get("param_groups") if isinstance(state, Mapping) else None
    try:
        return [len(group["params"]) for group in groups] if groups is not None else None
    except (TypeError, KeyError):
        return None


def _sizes(optimizer: Optimizer) -> list[int]:
    return [len(group["params"]) for group in optimizer.param_groups]


def is_larger(saved: list[int], optimizer: Optimizer) -> bool:
    """Return whether a saved state has the same groups as the optimizer, with more parameters in them."""
    own = _sizes(optimizer)
    return len(saved) == len(own) and saved != own and all(there >= here for there, here in zip(saved, own))


def is_of_before(saved: list[int], optimizer: Optimizer, joined: AddedParameters) -> bool:
    """Return whether a saved state has exactly the optimizer's parameters without those that commands have added."""
    own = [sum(not joined.holds(tensor) for tensor in group["params"]) for group in optimizer.param_groups]
    return saved == own != _sizes(optimizer)


def _fitting_counts(
    left: Iterable[Scheduled], optimizer: Optimizer, saved: list[int], apply: Callable[[Command], CommandResult]
) -> list[int]:
    """Return after how many entries the optimizer has the sizes of the checkpoint; one number for each set of parameters.

    Each toggle is applied, and all are undone afterwards.
    """
    fits: dict[tuple[int, ...], int] = {}
    applied: list[CommandResult] = []
    try:
        for number, entry in enumerate(left, 1):
            if not isinstance(entry.command, _TOGGLES):
                continue
            try:
                if isinstance(entry.command, Undo):
                    _take_back(applied)
                else:
                    applied.append(apply(entry.command))
            except NothingToDo:
                continue
            except CommandRefused:
                break
            if _sizes(optimizer) == saved:
                fits.setdefault(tuple(id(tensor) for tensor in membership.parameters(optimizer)), number)
    finally:
        while applied:
            with suppress(CommandRefused):
                _take_back(applied)
    return list(fits.values())


def _take_back(applied: list[CommandResult]) -> None:
    if not applied or (undo := applied.pop().undo) is None:
        raise CommandRefused(refusals.NOTHING_TO_UNDO)
    undo()


def apply_before(
    schedule: ReplayedSchedule,
    optimizer: Optimizer,
    saved: list[int],
    apply: Callable[[Command], CommandResult],
    carry_out: Callable[[Command], object],
) -> str:
    """Apply the entries that the optimizer needs to load a state of these sizes. Return what was done, or why nothing was.

    `apply` applies a toggle without emitting an answer, and raises `CommandRefused`; `carry_out` applies a command for good
    and answers it.
    """
    own = plural(sum(_sizes(optimizer)), "parameter")
    facts = f"{type(optimizer).__name__} has {own} and the script loads a state of {sum(saved):,}"
    if not schedule.left:
        return f"{facts}: if an unfreeze added the others, run with the schedule that unfroze them (--schedule FILE)"
    counts = _fitting_counts(schedule.left, optimizer, saved, apply)
    if len(counts) > 1:
        return f"{facts}: several entries make it fit, with other parameters each; keep those that were applied before the save"
    if not counts:
        return f"{facts}: no entries of the schedule make it fit"
    (count,) = counts
    due = schedule.take_first(count)
    for entry in due:
        if isinstance(entry.command, Intervention):
            carry_out(entry.command)
    titles = listed([entry.title or f"the one for step {entry.step:,}" for entry in due])
    left = "; the other entries count the steps of this run" if schedule.left else ""
    return (
        f"{facts}: applied before the load: {titles}{left}. What they unfroze has the weights that the script gave it, "
        "unless the script's checkpoint has them too"
    )
