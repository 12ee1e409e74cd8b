"""Apply the entries of a schedule that an optimizer needs before the script loads a checkpoint into it.

A checkpoint that a script saved while an unfreeze was in force names more parameters than the optimizer that a resumed script
creates, and torch refuses to load it. Before the load, gradtui applies the entries up to the first after which each group of
the optimizer has as many parameters as in the checkpoint. Training thread only, before the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from torch.optim import Optimizer

from gradtui.probe.commands.replayed_schedule import ReplayedSchedule
from gradtui.probe.model import AddedParameters
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo
from gradtui.protocol.commands import Command, Intervention, SetTrainable, TakeUpFreezes, TrainOnly, Undo
from gradtui.protocol.schedule import Scheduled

_TOGGLES = (SetTrainable, TrainOnly, TakeUpFreezes, Undo)
"""The commands that can change which parameters an optimizer has."""

Try = Callable[[Command], CommandResult]
"""Applies a toggle without emitting an answer. Raises `CommandRefused`."""


class ManyFit(Exception):  # noqa: N818 - it is an answer, not an error
    """Several prefixes of the schedule give the optimizer as many parameters as the checkpoint has, but not the same ones."""


def saved_sizes(state: Any) -> list[int] | None:
    """Return how many parameters each group of a saved state has; None if it is not the state of an optimizer."""
    groups = state.get("param_groups") if isinstance(state, Mapping) else None
    try:
        return [len(group["params"]) for group in groups] if groups is not None else None
    except (TypeError, KeyError):
        return None


def sizes(optimizer: Optimizer) -> list[int]:
    """Return how many parameters each group of an optimizer has."""
    return [len(group["params"]) for group in optimizer.param_groups]


def is_larger(saved: Sequence[int], optimizer: Optimizer) -> bool:
    """Return whether a saved state has the same groups as the optimizer, with more parameters in them."""
    own = sizes(optimizer)
    return len(saved) == len(own) and saved != own and all(there >= here for there, here in zip(saved, own))


def is_of_before(saved: Sequence[int], optimizer: Optimizer, joined: AddedParameters) -> bool:
    """Return whether a saved state has exactly the optimizer's parameters without those that commands have added."""
    own = [sum(not joined.holds(tensor) for tensor in group["params"]) for group in optimizer.param_groups]
    return list(saved) == own != sizes(optimizer)


def entries_needed(left: Sequence[Scheduled], optimizer: Optimizer, saved: Sequence[int], apply: Try) -> int:
    """Return how many entries to apply so that the optimizer can load a state of these sizes; 0 if none make it fit.

    Each toggle is applied, and all are undone afterwards.

    Raises:
        ManyFit: the checkpoint does not determine which entries were in force when it was saved.
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
            if sizes(optimizer) == list(saved):
                fits.setdefault(tuple(id(tensor) for tensor in membership.parameters(optimizer)), number)
    finally:
        while applied:
            with suppress(CommandRefused):
                _take_back(applied)
    if len(fits) > 1:
        raise ManyFit
    return next(iter(fits.values()), 0)


def _take_back(applied: list[CommandResult]) -> None:
    if not applied or (undo := applied.pop().undo) is None:
        raise CommandRefused("there is nothing to undo")
    undo()


def apply_before(
    schedule: ReplayedSchedule,
    optimizer: Optimizer,
    saved: Sequence[int],
    apply: Try,
    carry_out: Callable[[Command], object],
) -> str:
    """Apply the entries that the optimizer needs. Return in words what was done, or why nothing was.

    `carry_out` applies a command for good and answers it.
    """
    name, own, there = type(optimizer).__name__, sum(sizes(optimizer)), sum(saved)
    facts = f"{name} has {own:,} parameter{'' if own == 1 else 's'} and the script loads a state of {there:,}"
    if not schedule.left:
        return f"{facts}: if an unfreeze added the others, run with the schedule that unfroze them (--schedule FILE)"
    try:
        count = entries_needed(schedule.left, optimizer, saved, apply)
    except ManyFit:
        return f"{facts}: several entries make it fit, with other parameters each; keep those that were applied before the save"
    if not count:
        return f"{facts}: no entries of the schedule make it fit"
    due = schedule.take_first(count)
    for entry in due:
        if isinstance(entry.command, Intervention):
            carry_out(entry.command)
    titles = ", ".join(entry.title or f"the one for step {entry.step:,}" for entry in due[:3])
    more = f" and {count - 3:,} more" if count > 3 else ""
    left = "; the other entries count the steps of this run" if schedule.left else ""
    return (
        f"{facts}: applied before the load: {titles}{more}{left}. What they unfroze has the weights that the script gave it, "
        "unless the script's checkpoint has them too"
    )
