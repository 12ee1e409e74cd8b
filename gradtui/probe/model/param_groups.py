"""Read the settings of param groups without waiting for a device. Runs on the training thread.

Learning rates are read in every step that is not buffered, and several times a second in between. The other settings are
read in sampled steps, and whenever a learning rate has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from gradtui.probe.runtime import RunClock
from gradtui.protocol.events import Event, GroupsRead
from gradtui.protocol.vocabulary import GroupSettings, Setting
from gradtui.system.printable import printable

_NO_SETTINGS = frozenset({
    "params", "param_names", "lr", "weight_decay", "initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum",
    "capturable", "differentiable",
})  # fmt: skip
"""The keys of a group that are not reported: values that schedulers store in it, and what graphs and derivatives need."""

_MAX, _MAX_NAME = 16, 60

_Groups = tuple[tuple[GroupSettings, ...], ...]
_Optimizers = Sequence[Sequence[dict[str, Any]] | None]
"""The groups of each optimizer; None for a freed one."""


class GroupWatch:
    """Emits the settings of all optimizers when they have changed."""

    def __init__(self, emit: Callable[[Event], None], clock: RunClock, optimizers: Callable[[], _Optimizers]) -> None:
        self._emit, self._clock, self._optimizers = emit, clock, optimizers
        self.rates: list[float | None] = []
        """The learning rates of all groups that were read last."""
        self._groups: _Groups = ()
        self._rates_read: int | None = None
        """The latest step whose learning rates were read."""
        self._all_read: int | None = None
        """The latest step whose settings were all read."""

    def look(self, step: int, is_over: bool = False) -> None:
        """Read all settings again if a learning rate has changed. `step` is the one that uses them.

        If `step` `is_over` for some time, unchanged learning rates are those that it used; changed ones show nothing.
        """
        rates = []
        for groups in self._optimizers():
            if groups is not None:
                for group in groups:
                    rate = group.get("lr")
                    rates.append(rate if type(rate) is float else _number(rate))
        if rates == self.rates:
            self._rates_read = step
        elif not is_over:
            self.read(step)
            self.rates, self._rates_read = rates, step

    def finish(self, step: int) -> None:
        """Call `look` at the end of the run, unless an optimizer was freed: its last settings stay reported."""
        if all(groups is not None for groups in self._optimizers()):
            self.look(step)

    def read(self, step: int) -> None:
        """Read all settings; `step` is the one that uses them."""
        groups = read_groups(self._optimizers())
        if groups != self._groups:
            # A new group adds one rate.
            only_rates = all(
                new[: len(old)] == old for new, old in zip(_without_rates(groups), _without_rates(self._groups))
            )
            before = self._rates_read if only_rates else self._all_read
            self._groups = groups
            self._emit(GroupsRead(self._clock.at(), step, groups, before))
        self._all_read = step


def read_groups(optimizers: _Optimizers) -> _Groups:
    """Return the settings of each group of each optimizer; an empty tuple for a freed one."""
    return tuple(
        tuple(
            GroupSettings(
                _number(group.get("lr")), _number(group.get("weight_decay")), _further(group), _name(group.get("name"))
            )
            for group in groups or ()
        )
        for groups in optimizers
    )


def _without_rates(groups: _Groups) -> list[list[GroupSettings]]:
    return [[replace(each, learning_rate=None) for each in of_one] for of_one in groups]


def _further(group: dict[str, Any]) -> tuple[tuple[str, Setting], ...]:
    named = [(name, _setting(value)) for name, value in group.items() if name not in _NO_SETTINGS]
    return tuple([(str(name), value) for name, value in named if value is not None][:_MAX])


def _name(value: Any) -> str:
    return printable(value[:_MAX_NAME]) if type(value) is str else ""


def _setting(value: Any) -> Setting | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, (tuple, list)) and len(value) <= _MAX:
        numbers = [number for each in value if (number := _number(each)) is not None]
        return tuple(numbers) if numbers and len(numbers) == len(value) else None
    return _number(value)


def _number(value: Any) -> float | None:
    if isinstance(value, torch.Tensor):
        # Reading a value from a device would wait for the device.
        return float(value) if value.device.type == "cpu" and value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) else None
