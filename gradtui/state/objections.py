"""Why a command of a file or of another process cannot be carried out, as far as that is known without the run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gradtui.protocol.codec import BadEntry
from gradtui.protocol.commands import (
    Command,
    RunSteps,
    SetCheckpointing,
    SetGroup,
    SetMode,
    SetTrainable,
    ShowRank,
    TraceGradient,
    TrainOnly,
)
from gradtui.state.selection import NothingSelected, find, objection_to_expressions, spellings, unknown_path

if TYPE_CHECKING:
    from gradtui.state.run_state import RunState


def objection_to(command: Command) -> str | None:
    """Return why no run could carry out this command; None if one could."""
    if isinstance(command, RunSteps) and command.count < 1:
        return f"the count of run_steps is from 1 on, not {command.count}"
    if isinstance(command, SetTrainable) and command.restore and not command.trainable:
        return "restore is for unfreeze: it restores what commands have frozen"
    if isinstance(command, ShowRank) and command.rank < 0:
        return f"ranks are numbered from 0 on: there is no rank {command.rank}"
    if isinstance(command, SetGroup):
        numbers = [value for value in (command.learning_rate, command.weight_decay) if value is not None]
        if not numbers:
            return "set_group needs a learning_rate or a weight_decay"
        negative = [value for value in (command.optimizer, command.group, *numbers) if value < 0]
        return f"the numbers of set_group are from 0 on, not {negative[0]:g}" if negative else None
    return objection_to_expressions(getattr(command, "selection", getattr(command, "path", "")))


def missing_target(state: RunState, command: Command) -> str | None:
    """Return that a command names nothing that the models of the run have; None if it may, or if no model is known yet."""
    tree = state.tree
    if not tree.modules:
        return None
    if isinstance(command, (SetCheckpointing, SetMode)):
        paths = {module.path for module in tree.modules}.union(*(info.names for info in tree.parameters))
        is_there = any(spelling in paths for spelling in spellings(command.path, tree))
        return None if is_there else unknown_path(command.path, tree)
    if not isinstance(command, (SetTrainable, TrainOnly, TraceGradient)):
        return None
    try:
        find(command.selection if isinstance(command, TrainOnly) else command.path, tree)
    except NothingSelected as nothing:
        return str(nothing)
    return None


def in_full(words: Mapping[str, Any], state: RunState | None) -> dict[str, Any]:
    """Return the words of a command, with the param group of a `set_group` that names none if the run has only one.

    Args:
        words: the command, as `from_words` reads it.
        state: the run; None if it is unknown, to check the other words.

    Raises:
        BadEntry: the run has several groups, or none. The message names them.
    """
    if words.get("command") != "set_group" or {"optimizer", "group"} <= words.keys():
        return dict(words)
    if state is None:
        return {"optimizer": 0, "group": 0, **words}
    groups = [
        (index, group)
        for index, optimizer in enumerate(state.optimizers)
        for group in range(0 if optimizer.freed else optimizer.groups)
    ]
    named = [
        (index, group)
        for index, group in groups
        if words.get("optimizer", index) == index and words.get("group", group) == group
    ]
    if len(named) == 1:
        return {**words, "optimizer": named[0][0], "group": named[0][1]}
    if not groups:
        raise BadEntry("no optimizer has been seen yet" if not state.optimizers else "there is no optimizer left")
    listed = "; ".join(_group_words(state, *each) for each in (named or groups)[:_MOST_LISTED])
    left = len(named or groups) - _MOST_LISTED
    more = f"; and {left} more" if left > 0 else ""
    trouble = f"there are {len(named)} param groups, name one of" if named else "there is no such param group; there is"
    raise BadEntry(f"{trouble} {listed}{more}")


_MOST_LISTED = 6


def _group_words(state: RunState, optimizer: int, group: int) -> str:
    read = state.groups.optimizers[optimizer] if state.groups and optimizer < len(state.groups.optimizers) else ()
    rate = read[group].learning_rate if group < len(read) else None
    now = "" if rate is None else f" has learning rate {rate:g}"
    return f"optimizer={optimizer} group={group} ({state.optimizers[optimizer].type_name}){now}"
