"""The param groups of the optimizers, each with its parameters and its learning rate. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import GroupSettings
from gradtui.run.state.run_state import RunState

Key = tuple[int, int]
"""The index of an optimizer, and that of a group of it."""


@dataclass(frozen=True)
class ParamGroup:
    """A param group with which an optimizer steps."""

    optimizer: int
    number: int
    name: str
    """What the script calls it (its `name`), or else the longest path that all its parameters are in; empty without any."""
    parameters: tuple[int, ...]
    """Indexes of its known parameters."""
    rate: float | None
    """Its learning rate; None if unknown."""


def param_groups(state: RunState) -> list[ParamGroup]:
    """Return the groups of all optimizers that exist, without those of wrappers, which have the groups of another one."""
    found = []
    for index, optimizer in enumerate(state.optimizers):
        if optimizer.freed or optimizer.groups_of >= 0:
            continue
        members: list[list[int]] = [[] for _ in range(optimizer.groups)]
        for parameter, group in zip(optimizer.parameters, optimizer.group_of):
            members[group].append(parameter)
        for number, parameters in enumerate(members):
            settings = settings_of(state, (index, number))
            given, rate = (settings.name, settings.learning_rate) if settings is not None else ("", None)
            found.append(ParamGroup(index, number, given or _common_path(state, parameters), tuple(parameters), rate))
    return found


def rate_of(state: RunState, group: Key) -> float | None:
    """Return the learning rate of a group; None if unknown."""
    settings = settings_of(state, group)
    return settings.learning_rate if settings is not None else None


def settings_of(state: RunState, group: Key) -> GroupSettings | None:
    """Return the settings of a group; None until they are read."""
    read = state.groups.optimizers if state.groups is not None else ()
    known = read[group[0]] if group[0] < len(read) else ()
    return known[group[1]] if group[1] < len(known) else None


def groups_by_parameter(state: RunState) -> Mapping[int, tuple[Key, ...]]:
    """Return the groups of each parameter that some optimizer has: more than one if several optimizers have it."""
    found: dict[int, tuple[Key, ...]] = {}
    for index, optimizer in enumerate(state.optimizers):
        if not optimizer.freed and optimizer.groups_of < 0:
            for parameter, group in zip(optimizer.parameters, optimizer.group_of):
                found[parameter] = (*found.get(parameter, ()), (index, group))
    return found


def _common_path(state: RunState, parameters: list[int]) -> str:
    known = state.tree.parameters
    paths = [known[index].path.split(".")[:-1] for index in parameters if index < len(known)]
    if not paths:
        return ""
    first, last = min(paths), max(paths)
    same = next((at for at, (one, other) in enumerate(zip(first, last)) if one != other), min(len(first), len(last)))
    return ".".join(first[:same])
