"""Why a command cannot be carried out, as far as that is known without the run. Pure.

Files, other processes and the training thread check each command here before anything is changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gradtui.protocol.codec import BadEntry, shown
from gradtui.protocol.commands import (
    Command,
    EndTry,
    RunSteps,
    SetCheckpointing,
    SetGroup,
    SetLearningRate,
    SetMode,
    SetRowsTrainable,
    SetTrainable,
    ShowRank,
    TraceGradient,
    TrainOnly,
    TryChange,
)
from gradtui.run.state.parts.tries import objection_to_try
from gradtui.run.state.tree.row_ranges import objection_to_rows
from gradtui.run.state.tree.selection import NothingSelected, find, objection_to_expressions, spellings, unknown_path

if TYPE_CHECKING:
    from gradtui.run.state.run_state import RunState


MAX_SETTING = 1e30
"""The largest learning rate or weight decay. Optimizers divide a learning rate by bias corrections of 0.001 and less, and the
result must fit in float32, which ends at 3.4e38."""
_MAX_FLOAT32 = float.fromhex("0x1.fffffep+127")
_WHOLE_NUMBERS = range(-(1 << 63), 1 << 63)


def objection_to(command: Command) -> str | None:
    """Return why no run could carry out this command; None if one could."""
    if isinstance(command, SetGroup):
        return _objection_to_settings(command)
    if isinstance(command, SetLearningRate):
        return _objection_to_value("learning rate", command.learning_rate) or objection_to_expressions(command.path)
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        if field.name != "id" and isinstance(value, int) and value not in _WHOLE_NUMBERS:
            return f"its {field.name} needs more than 64 bits"
        if isinstance(value, float) and not abs(value) <= _MAX_FLOAT32:
            return f"its {field.name} is not a finite number of 32 bits: {value:g}"
    if isinstance(command, RunSteps) and command.count < 1:
        return f"the count of run_steps is from 1 on, not {command.count}"
    if isinstance(command, SetTrainable) and command.restore and not command.trainable:
        return "restore is for unfreeze: it restores what commands have frozen"
    if isinstance(command, SetRowsTrainable) and (objection := objection_to_rows(command.rows)) is not None:
        return objection
    if isinstance(command, ShowRank) and command.rank < 0:
        return f"ranks are numbered from 0 on: there is no rank {command.rank}"
    return _objection_to_words(command)


def _objection_to_words(command: Command) -> str | None:
    if isinstance(command, (EndTry, TryChange)):
        return objection_to_try(command)
    return objection_to_expressions(getattr(command, "selection", getattr(command, "path", "")))


def _objection_to_settings(command: SetGroup) -> str | None:
    for name, index in (("optimizer", command.optimizer), ("group", command.group)):
        if index not in _WHOLE_NUMBERS:
            return f"its {name} needs more than 64 bits"
        if index < 0:
            return f"there is no {name} {index}: they are numbered from 0 on"
    settings = {"learning rate": command.learning_rate, "weight decay": command.weight_decay}
    given = {name: value for name, value in settings.items() if value is not None}
    if not given:
        return "neither a learning rate nor a weight decay was named"
    return next((why for name, value in given.items() if (why := _objection_to_value(name, value)) is not None), None)


def _objection_to_value(name: str, value: float) -> str | None:
    if not value >= 0:
        return f"a {name} is a number from 0 on, not {value:g}"
    if value > MAX_SETTING:
        size = f"{value:g}" if isinstance(value, float) else shown(value)
        return (
            f"a {name} of {size} would break the run: its limit is {MAX_SETTING:g}, so that float32 does not overflow"
        )
    return None


def missing_target(state: RunState, command: Command) -> str | None:
    """Return that a command names nothing that the models of the run have; None if it may, or if no model is known yet."""
    tree = state.tree
    if not tree.modules:
        return None
    if isinstance(command, SetGroup):
        groups = _groups(state)
        return unknown_group(groups) if (command.optimizer, command.group) not in groups else None
    if isinstance(command, (SetCheckpointing, SetMode)):
        paths = {module.path for module in tree.modules}.union(*(info.names for info in tree.parameters))
        is_there = any(spelling in paths for spelling in spellings(command.path, tree))
        return None if is_there else unknown_path(command.path, tree)
    if not isinstance(command, (SetLearningRate, SetRowsTrainable, SetTrainable, TrainOnly, TraceGradient)):
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
    groups = _groups(state)
    named = {
        (optimizer, group): title
        for (optimizer, group), title in groups.items()
        if words.get("optimizer", optimizer) == optimizer and words.get("group", group) == group
    }
    if len(named) == 1:
        ((optimizer, group),) = named
        return {**words, "optimizer": optimizer, "group": group}
    if not groups:
        raise BadEntry("no optimizer has been seen yet" if not state.optimizers else NO_OPTIMIZER_LEFT)
    if named:
        raise BadEntry(f"there are {len(named)} param groups, name one of {_listed(named)}")
    raise BadEntry(unknown_group(groups))


Groups = Mapping[tuple[int, int], str]
"""By numbers of the optimizer and the param group: what it is, for the user."""
NO_OPTIMIZER_LEFT = "there is no optimizer left"
_MAX_LISTED = 6


def unknown_group(groups: Groups) -> str:
    """Return that a command names a param group that there is not, and those that there are, at most 6 of them."""
    return f"there is no such param group; there is {_listed(groups)}" if groups else NO_OPTIMIZER_LEFT


def _listed(groups: Groups) -> str:
    words = [f"optimizer={optimizer} group={group} {title}" for (optimizer, group), title in groups.items()]
    more = [f"and {len(words) - _MAX_LISTED} more"] if len(words) > _MAX_LISTED else []
    return "; ".join([*words[:_MAX_LISTED], *more])


def _groups(state: RunState) -> Groups:
    return {
        (index, group): _group_words(state, index, group)
        for index, optimizer in enumerate(state.optimizers)
        for group in range(0 if optimizer.freed else optimizer.groups)
    }


def _group_words(state: RunState, optimizer: int, group: int) -> str:
    read = state.groups.optimizers[optimizer] if state.groups and optimizer < len(state.groups.optimizers) else ()
    return group_title(state.optimizers[optimizer].type_name, read[group].learning_rate if group < len(read) else None)


def group_title(optimizer: str, rate: float | None) -> str:
    """Return a param group by the class of its optimizer and its learning rate, None if that is unknown."""
    return f"({optimizer})" if rate is None else f"({optimizer}) has learning rate {rate:g}"
