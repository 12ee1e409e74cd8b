"""Set the learning rate and weight decay of a param group so that they last under a scheduler. Training thread, at a boundary.

Schedulers compute the next rate from either the current one (StepLR, ExponentialLR, …) or the group's initial rate (`base_lrs`,
`initial_lr`, and the limits of cyclic ones: LambdaLR, OneCycleLR, …). gradtui treats a new rate as a change of scale: it
multiplies all of these by new / old, so that any schedule continues from the new rate with its former shape.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from gradtui.probe.runtime import CommandRefused, CommandResult, TargetGone
from gradtui.protocol.commands import SetGroup
from gradtui.run.state.changes.objections import MAX_SETTING, group_title, unknown_group
from gradtui.run.text import refusals

_OF_GROUP = ("initial_lr", "max_lr", "min_lr")
_OF_SCHEDULER = ("base_lrs", "max_lrs")


def group_to_set(command: SetGroup, optimizers: Sequence[Optimizer | None]) -> tuple[Optimizer, dict[str, float]]:
    """Return the optimizer, and the new values by name. Raises `CommandRefused` where they cannot be set."""
    optimizer = optimizers[command.optimizer] if 0 <= command.optimizer < len(optimizers) else None
    if optimizer is None or not 0 <= command.group < len(optimizer.param_groups):
        raise CommandRefused(unknown_group(_groups(optimizers)))
    group = optimizer.param_groups[command.group]
    requested = {"lr": command.learning_rate, "weight_decay": command.weight_decay}
    values = {name: value for name, value in requested.items() if value is not None}
    _refuse(values, group, optimizer)
    return optimizer, values


def set_group(command: SetGroup, optimizers: Sequence[Optimizer | None]) -> CommandResult:
    """Set the values that the command names. Raises `CommandRefused`, and changes nothing, where that is not possible."""
    optimizer, values = group_to_set(command, optimizers)
    group = optimizer.param_groups[command.group]
    schedulers = _schedulers_of(optimizer) if "lr" in values else []
    before = float(group["lr"]) if "lr" in values else 0.0
    if schedulers and not before:
        names = " and ".join(type(each).__name__ for each in schedulers)
        raise CommandRefused(refusals.rate_is_zero(names))
    scaled = _scaled(schedulers, group, command.group, values["lr"] / before) if schedulers and values["lr"] else []
    most = max((abs(each.after) for each in scaled if abs(each.before) <= MAX_SETTING), default=0.0)
    if not most <= MAX_SETTING:
        names = " and ".join(type(each).__name__ for each in schedulers)
        raise CommandRefused(refusals.breaks_schedule(names, most))
    undos = [_set(group, name, value) for name, value in values.items()]
    for each in scaled:
        each.set(group, each.after)
    said = ", ".join(f"{_NAMES[name]} {old:g} → {values[name]:g}" for (name, old, _) in undos)
    title = f"{type(optimizer).__name__} group {command.group}"
    undo = _undo(title, optimizer, command.group, undos, scaled)
    return CommandResult(f"{title}: {said}{_schedule_words(schedulers, values.get('lr'))}", (), undo)


def _groups(optimizers: Sequence[Optimizer | None]) -> dict[tuple[int, int], str]:
    # To read a rate that is a tensor would wait for its device.
    return {
        (index, number): group_title(type(optimizer).__name__, rate if isinstance(rate, (int, float)) else None)
        for index, optimizer in enumerate(optimizers)
        for number, group in enumerate(optimizer.param_groups if optimizer is not None else ())
        for rate in (group.get("lr"),)
    }


_NAMES = {"lr": "learning rate", "weight_decay": "weight decay"}

_Change = tuple[str, float, float]
"""Name, value before, value after."""


def refuse_beyond_limits(values: dict[str, float], group: dict[str, Any]) -> None:
    """Refuse settings of a group that its parameters cannot take. Raises `CommandRefused`."""
    for name, value in values.items():
        for limit in _limits(group, name):
            if value > limit.max:
                raise CommandRefused(refusals.breaks_its_numbers(_NAMES[name], value, limit.dtype, limit.max))


def _refuse(values: dict[str, Any], group: dict[str, Any], optimizer: Optimizer) -> None:
    for name in values:
        if name not in group:
            raise CommandRefused(refusals.has_no_setting(type(optimizer).__name__, _NAMES[name]))
    refuse_beyond_limits(values, group)
    for name in values:
        if isinstance(group[name], torch.Tensor) and group[name].numel() != 1:
            raise CommandRefused(refusals.several_elements(_NAMES[name]))
    if all(float(group[name]) == value for name, value in values.items()):
        raise CommandRefused(refusals.ALREADY_SO)


def _limits(group: dict[str, Any], name: str) -> list[torch.finfo]:
    """Return the number types that a setting of this group must fit in: optimizers convert it to that of the parameters."""
    kinds = {tensor.dtype for tensor in (*group["params"], group[name]) if isinstance(tensor, torch.Tensor)}
    return [torch.finfo(kind) for kind in kinds if kind.is_floating_point or kind.is_complex]


def _set(group: dict[str, Any], name: str, value: float) -> _Change:
    """Set one number, in place if it is a tensor: a captured or compiled step reads it there."""
    old = float(group[name])
    if isinstance(group[name], torch.Tensor):
        with torch.no_grad():
            group[name].fill_(value)
    else:
        group[name] = value
    return name, old, value


def _schedulers_of(optimizer: Optimizer) -> list[Any]:
    """Return the live schedulers that set this optimizer's rates. An optimizer has no reference to them."""
    kinds = (LRScheduler, ReduceLROnPlateau)
    # Test the type rather than the object: some objects of a script do work when asked for their `__class__`.
    found = [each for each in gc.get_objects() if issubclass(type(each), kinds)]
    return [each for each in found if getattr(each, "optimizer", None) is optimizer]


class _Scaled(NamedTuple):
    """One value from which schedulers compute rates."""

    scheduler: weakref.ref[Any] | None
    """The scheduler that has a list of it; None if the group has it."""
    name: str
    group: int
    before: float
    after: float

    def get(self, group: dict[str, Any]) -> float | None:
        """Return the present value; None if its scheduler is gone."""
        holder, key = self._place(group)
        return holder[key] if holder is not None else None

    def set(self, group: dict[str, Any], value: float) -> None:
        """Set the value."""
        holder, key = self._place(group)
        holder[key] = value

    def _place(self, group: dict[str, Any]) -> tuple[Any, Any]:
        if self.scheduler is None:
            return group, self.name
        return getattr(self.scheduler(), self.name, None), self.group


def _scaled(schedulers: Sequence[Any], group: dict[str, Any], index: int, factor: float) -> list[_Scaled]:
    """Return what schedulers compute rates from, with the values that the factor makes of it."""
    found = [
        _Scaled(None, name, index, group[name], group[name] * factor)
        for name in _OF_GROUP
        if isinstance(group.get(name), (int, float))
    ]
    seen: set[int] = set()
    for scheduler in schedulers:
        for name in _OF_SCHEDULER:
            rates: Any = getattr(scheduler, name, None)
            fits = isinstance(rates, list) and index < len(rates) and isinstance(rates[index], (int, float))
            if fits and id(rates) not in seen:
                seen.add(id(rates))
                found.append(_Scaled(weakref.ref(scheduler), name, index, rates[index], rates[index] * factor))
    return found


def _undo(
    title: str, optimizer: Optimizer, index: int, undos: list[_Change], scaled: list[_Scaled]
) -> Callable[[], CommandResult]:
    reference = weakref.ref(optimizer)

    def undo() -> CommandResult:
        live = reference()
        if live is None or index >= len(live.param_groups):
            raise TargetGone(refusals.is_gone(title))
        group = live.param_groups[index]
        said = []
        values = {
            name: _taken_back(float(group[name]), before, after) if name == "lr" and scaled else before
            for name, before, after in undos
        }
        rates = [(each, _taken_back(now, *each[3:])) for each in scaled if (now := each.get(group)) is not None]
        for name, value in values.items():
            _, now, _ = _set(group, name, value)
            said.append(f"{_NAMES[name]} {now:g} → {value:g}")
        for each, rate in rates:
            each.set(group, rate)
        return CommandResult(f"{title}: {', '.join(said)}", ())

    return undo


def _taken_back(now: float, before: float, after: float) -> float:
    """Return what a rate is without the change from `before` to `after`. Raises `CommandRefused` if it would break the run."""
    if now == after or not after:
        return before
    value = now * before / after
    if not abs(value) <= MAX_SETTING:
        raise CommandRefused(refusals.breaks_rate(value))
    return value


def _schedule_words(schedulers: Sequence[Any], rate: float | None) -> str:
    if not schedulers or rate is None:
        return ""
    names = " and ".join(dict.fromkeys(type(each).__name__ for each in schedulers))
    if not rate:
        return f"; {names} may set it again at its next step"
    return f"; {names} continues from there, with its own rates scaled by the same factor"
