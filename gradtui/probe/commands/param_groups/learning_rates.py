"""Set the learning rate of a param group, or of some parameters of one. Training thread only, at a boundary.

Parameters that are all of a group get it with their group (`param_group_settings`). Others get a rate of their own
(`probe/model/own_rates.py`), and only the optimizer's steps know of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch.optim import Optimizer

from gradtui.probe.commands.param_groups import param_group_settings
from gradtui.probe.commands.selections import select
from gradtui.probe.commands.undo import Change, in_order
from gradtui.probe.commands.wrappers import refuse_flattened
from gradtui.probe.model import Guard, ModelRegistry, OwnRate, ParamGroup
from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo, TargetGone
from gradtui.protocol.commands import SetGroup, SetLearningRate
from gradtui.run.text import plural, refusals

_INDIVISIBLE = {
    "LBFGS": refusals.LBFGS_HAS_ONE_GROUP,
    "ZeroRedundancyOptimizer": refusals.DIVIDES_ITS_GROUPS,
}
"""By the name of a class of optimizers: why its groups cannot be divided."""


class _Part(NamedTuple):
    """The parameters of one group that a command names."""

    optimizer: Optimizer
    number: int
    """The index of the group among those of the script."""
    group: ParamGroup
    tensors: list[torch.Tensor]

    @property
    def title(self) -> str:
        return f"{type(self.optimizer).__name__} group {self.number}"

    @property
    def is_whole(self) -> bool:
        return len(self.tensors) == len(self.group["params"])


class LearningRates:
    """Sets the learning rates of param groups and of parameters. `guard` calls what the hooks of an optimizer do."""

    def __init__(self, view: ModelRegistry, guard: Guard) -> None:
        self._view, self._guard = view, guard

    def set_group(self, command: SetGroup) -> CommandResult:
        """Set learning rate and weight decay of a group. Raises `CommandRefused`."""
        apart = self._group_apart(command)
        if apart is None:
            return param_group_settings.set_group(command, self._view.discovery.optimizers.all())
        title, tensors = apart
        return self._set(title, tensors, command.learning_rate or 0.0)

    def refuse_group(self, command: SetGroup) -> None:
        """Raise `CommandRefused` if `set_group` would be refused, as far as that is known without a change."""
        if self._group_apart(command) is None:
            param_group_settings.group_to_set(command, self._view.discovery.optimizers.all())

    def set_of(self, command: SetLearningRate) -> CommandResult:
        """Set the learning rate of the parameters that a command names. Raises `CommandRefused`."""
        path, named = select(command.path, self._view.tree)
        return self._set(path or "the model", list(named.values()), command.learning_rate)

    def refuse(self, command: SetLearningRate) -> None:
        """Raise `CommandRefused` if `set_of` would be refused, as far as that is known without a change."""
        path, named = select(command.path, self._view.tree)
        self._changes(path or "the model", list(named.values()), command.learning_rate)

    def _group_apart(self, command: SetGroup) -> tuple[str, list[torch.Tensor]] | None:
        """Return the title and the parameters of a group that commands have made; None if the command names none."""
        optimizers = self._view.discovery.optimizers
        optimizer = dict(enumerate(optimizers.all())).get(command.optimizer)
        groups = optimizers.rates.groups_of(optimizer) if optimizer is not None else ()
        if optimizer is None or not len(optimizer.param_groups) <= command.group < len(groups):
            return None
        if command.weight_decay is not None:
            raise CommandRefused(refusals.DECAYS_WITH_ITS_GROUP)
        return f"{type(optimizer).__name__} group {command.group}", groups[command.group]["params"]

    def _set(self, title: str, tensors: list[torch.Tensor], rate: float) -> CommandResult:
        done = in_order(self._changes(title, tensors, rate))
        indices = self._view.tree.indices(tensors)
        return replace(done, parameters=tuple(index for index in indices if index is not None))

    def _changes(self, title: str, tensors: list[torch.Tensor], rate: float) -> list[Change]:
        """Return the changes that give these parameters a rate. Raises `CommandRefused`, and then nothing may be changed."""
        refuse_flattened(self._view.tree)
        parts = list(self._parts(tensors))
        if not parts:
            raise CommandRefused(refusals.NO_OPTIMIZER_HAS_IT)
        changes: list[Change] = []
        for part in parts:
            changes += self._changes_of(title, part, rate)
        if not changes:
            raise NothingToDo(refusals.ALREADY_SO)
        return changes

    def _changes_of(self, title: str, part: _Part, rate: float) -> Iterator[Change]:
        own = self._view.discovery.optimizers.rates
        rates = [own.of(part.optimizer, tensor) for tensor in part.tensors]
        if part.is_whole:
            if any(rates):
                yield partial(self._give, title, part, None)
            try:
                command, optimizers = self._of_group(part, rate)
                param_group_settings.group_to_set(command, optimizers)
            except CommandRefused as refusal:
                if str(refusal) != refusals.ALREADY_SO:
                    raise
            else:
                yield partial(param_group_settings.set_group, command, optimizers)
            return
        now = _number_of(part)
        param_group_settings.refuse_beyond_limits({"lr": rate}, part.group)
        wanted = OwnRate(rate, now) if rate != now else None
        if wanted is not None and not now:
            raise CommandRefused(refusals.group_has_no_rate(part.title))
        if any((each.now(now) if each is not None else now) != rate for each in rates):
            yield partial(self._give, title, part, wanted)

    def _of_group(self, part: _Part, rate: float) -> tuple[SetGroup, list[Optimizer | None]]:
        optimizers = self._view.discovery.optimizers.all()
        at = next(index for index, each in enumerate(optimizers) if each is part.optimizer)
        return SetGroup(0, at, part.number, rate), optimizers

    def _parts(self, tensors: list[torch.Tensor]) -> Iterator[_Part]:
        """Yield the groups in use that have some of these parameters."""
        wanted, seen = set(map(id, tensors)), set[int]()
        for optimizer in (each for together in self._view.optimizers_in_use() for each in together):
            self._view.discovery.optimizers.rates.restore(optimizer)
            for number, group in enumerate(optimizer.param_groups):
                found = [tensor for tensor in group["params"] if id(tensor) in wanted]
                # Of an optimizer and its wrapper, which have the same groups, the first one.
                if found and id(group) not in seen:
                    seen.add(id(group))
                    yield _Part(optimizer, number, group, found)

    def _give(self, title: str, part: _Part, rate: OwnRate | None) -> CommandResult:
        own, now = self._view.discovery.optimizers.rates, float(part.group["lr"])
        before = [own.of(part.optimizer, tensor) for tensor in part.tensors]
        for optimizer in self._view.live_optimizers():
            if any(group is part.group for group in optimizer.param_groups):
                own.set(optimizer, [(tensor, rate) for tensor in part.tensors], self._guard)
        were = sorted({each.now(now) if each is not None else now for each in before})
        change = f"learning rate {_range(were)} → {rate.rate if rate is not None else now:g}"
        keeps = "at its rate" if rate is None else f"always at {rate.rate / rate.of_group:.3g} times its rate"
        text = f"{title}: {change}: {plural(len(part.tensors), 'tensor')} of {part.title}, {keeps}"
        undo = partial(self._take_back, title, part.title, list(zip(map(weakref.ref, part.tensors), before)))
        return CommandResult(text, (), undo)

    def _take_back(
        self, title: str, group: str, before: Sequence[tuple[weakref.ref[torch.Tensor], OwnRate | None]]
    ) -> CommandResult:
        living = [(tensor, rate) for reference, rate in before if (tensor := reference()) is not None]
        done = False
        for optimizer in self._view.live_optimizers():
            owned = {id(tensor) for each in optimizer.param_groups for tensor in each["params"]}
            back = [(tensor, rate) for tensor, rate in living if id(tensor) in owned]
            if back:
                self._view.discovery.optimizers.rates.set(optimizer, back, self._guard)
                done = True
        if not done:
            raise TargetGone(refusals.is_gone(group))
        return CommandResult(f"{title}: the learning rate is what it was", ())


def _number_of(part: _Part) -> float:
    """Return the rate of a group that can be divided. Raises `CommandRefused`."""
    names = [kind.__name__ for kind in type(part.optimizer).__mro__]
    why = next((reason for name, reason in _INDIVISIBLE.items() if name in names), None)
    if why is not None:
        raise CommandRefused(why)
    if "lr" not in part.group:
        raise CommandRefused(refusals.has_no_setting(names[0], "learning rate"))
    if part.group.get("capturable") or isinstance(part.group["lr"], torch.Tensor):
        raise CommandRefused(refusals.rate_is_read_on_device(part.title))
    return float(part.group["lr"])


def _range(rates: Sequence[float]) -> str:
    return f"{rates[0]:g}" if len(rates) == 1 else f"{rates[0]:g}…{rates[-1]:g}"
