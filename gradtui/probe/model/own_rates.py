"""Learning rates that commands have given to some parameters of a param group. Training thread only.

Such a rate holds while the optimizer steps, and only then: hooks on the optimizer take the parameters out of their groups into
groups of their own before its step, and put them back after it. Between steps the optimizer has the groups that the script
made. So its `state_dict()` fits the script's optimizer, and schedulers, and code that sets the rate of a group, need not know
of it: the rate of the parameters keeps its ratio to that of their group, whoever changes that one.

An optimizer computes each group alone, so this equals a script that has made the groups itself (`torch.optim`, "Per-parameter
options").
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from gradtui.probe.runtime import ByIdentity
from gradtui.probe.torch_private.dynamo_frames import leave_to_python
from gradtui.probe.torch_private.own_hooks import as_own, own_ids
from gradtui.probe.torch_private.private_names import optimizer_steps_on_stack, version_of

ParamGroup = dict[str, Any]
Guard = Callable[..., object]
"""Calls a function with arguments, and isolates the script from what it raises."""

_Versions = list[tuple["weakref.ref[torch.Tensor]", int]]
"""Parameters with a gradient, and the counters that every write raises."""

_LISTS = ("params", "param_names")
"""What a group has an entry of for each parameter."""


class OwnRate(NamedTuple):
    """The learning rate of some parameters, when it was set."""

    rate: float
    of_group: float
    """That of their group."""

    def now(self, of_group: float) -> float:
        """Return the rate under that of the group."""
        return self.rate if of_group == self.of_group else of_group * (self.rate / self.of_group)


class _Optimizer:
    """The parameters of one optimizer that have rates of their own, and its hooks."""

    def __init__(self, optimizer: Optimizer, guard: Guard, apart: set[int]) -> None:
        self.rates: ByIdentity[torch.Tensor, OwnRate] = ByIdentity()
        self._apart = apart
        """The ids of the groups that were made for the steps that run now: another optimizer may be a wrapper of this one."""
        self._whole: list[tuple[ParamGroup, str, list[Any]]] = []
        """While the optimizer steps: the lists of the groups that were divided, as the script has made them."""
        self._own: list[ParamGroup] = []
        """While the optimizer steps: the groups that were made of them."""

        self._is_proven = type(optimizer).__module__.startswith("torch.optim.")
        """Whether a step of it is known to update all groups that it finds. Those of torch do."""
        self._versions: tuple[_Versions, _Versions] = [], []
        """Before a step that is to prove it: of the parameters with a rate of their own, and of the others."""

        def before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ARG001 - as torch calls it
            guard(self.divide, optimizer)

        def after_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ARG001
            guard(self.stepped, optimizer)

        def before_state(optimizer: Optimizer, *_: Any) -> None:
            guard(self.restore, optimizer)

        with own_ids():
            self._handles = [
                optimizer.register_step_pre_hook(as_own(leave_to_python(before_step))),
                optimizer.register_step_post_hook(as_own(leave_to_python(after_step))),
                # A step that raises has no post-hook.
                optimizer.register_state_dict_pre_hook(leave_to_python(before_state)),
                optimizer.register_load_state_dict_pre_hook(leave_to_python(before_state)),
            ]

    def remove_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()

    def groups(self, optimizer: Optimizer) -> Sequence[ParamGroup]:
        """Return the groups of a step: those of the script, followed by those of the parameters with other rates."""
        if self._own:
            return optimizer.param_groups
        divided = [(group, *self._divided(group)) for group in optimizer.param_groups]
        return [{**group, **rest} for group, rest, _ in divided] + [each for _, _, own in divided for each in own]

    def divide(self, optimizer: Optimizer) -> None:
        """Divide the groups for the step that begins."""
        if self._own:
            if optimizer_steps_on_stack(optimizer) > 1:
                # A subclass calls the step of its parent.
                return
            self.restore(optimizer)
        divided = [(group, *self._divided(group)) for group in optimizer.param_groups]
        if not self._is_proven:
            own = _versions(each for _, _, own in divided for each in own)
            self._versions = own, _versions({**group, **rest} for group, rest, _ in divided)
        # First what restores it: a Ctrl+C may come at any time.
        self._whole = [(group, name, group[name]) for group, rest, _ in divided for name in rest]
        self._own = [each for _, _, own in divided for each in own]
        self._apart.update(map(id, self._own))
        for group, rest, _ in divided:
            group.update(rest)
        optimizer.param_groups.extend(self._own)

    def stepped(self, optimizer: Optimizer) -> None:
        """Restore the groups if the outermost step of this optimizer has ended."""
        if self._own and optimizer_steps_on_stack(optimizer) <= 1:
            self.restore(optimizer)
            if not self._is_proven:
                self._prove(type(optimizer).__name__)

    def restore(self, optimizer: Optimizer) -> None:
        """Restore the groups as the script has made them."""
        for group, name, whole in self._whole:
            group[name] = whole
        own = set(map(id, self._own))
        if own:
            # In place: wrappers of the optimizer hold this list too.
            optimizer.param_groups[:] = [group for group in optimizer.param_groups if id(group) not in own]
        self._apart -= own
        self._whole, self._own = [], []

    def _prove(self, name: str) -> None:
        """Take back all rates if the step that has ended updated the script's groups alone. Raises `RuntimeError` then."""
        (own, others), self._versions = self._versions, ([], [])
        self._is_proven = _has_any_changed(own)
        if own and not self._is_proven and _has_any_changed(others):
            self.rates = ByIdentity()
            raise RuntimeError(
                f"a step of {name} updates only the groups that it was made with: it has its former rates again"
            )

    def _divided(self, group: ParamGroup) -> tuple[dict[str, list[Any]], list[ParamGroup]]:
        """Return the lists of a group without the parameters with other rates, and the groups of these. Both may be empty."""
        places: dict[OwnRate | None, list[int]] = {}
        for place, tensor in enumerate(group["params"] if id(group) not in self._apart else ()):
            places.setdefault(self.rates.get(tensor), []).append(place)
        rest = places.pop(None, [])
        if not places:
            return {}, []
        lists = {name: group[name] for name in _LISTS if name in group}
        own = [
            {**group, **_at(lists, chosen), "lr": rate.now(group["lr"])}
            for rate, chosen in places.items()
            if rate is not None
        ]
        return _at(lists, rest), own


def _versions(groups: Iterable[ParamGroup]) -> _Versions:
    tensors = (tensor for group in groups for tensor in group["params"] if tensor.grad is not None)
    return [(weakref.ref(tensor), version_of(tensor)) for tensor in tensors]


def _has_any_changed(before: _Versions) -> bool:
    return any(
        tensor is not None and version_of(tensor) != version for tensor, version in ((each(), v) for each, v in before)
    )


def _at(lists: dict[str, list[Any]], places: list[int]) -> dict[str, list[Any]]:
    return {name: [each[place] for place in places] for name, each in lists.items()}


class OwnRates:
    """The learning rates that commands have given to parameters, by optimizer."""

    def __init__(self) -> None:
        self._known: ByIdentity[Optimizer, weakref.ref[_Optimizer]] = ByIdentity()
        """The hooks of an optimizer hold the rest, which ends with it."""
        self._apart: set[int] = set()
        self.are_used = False
        """Whether any parameter has had a rate of its own."""

    def of(self, optimizer: Optimizer, tensor: torch.Tensor) -> OwnRate | None:
        """Return the rate of a parameter; None if it has that of its group."""
        known = self._of(optimizer)
        return known.rates.get(tensor) if known is not None else None

    def set(self, optimizer: Optimizer, rates: Iterable[tuple[torch.Tensor, OwnRate | None]], guard: Guard) -> None:
        """Set the rates of these parameters from the next step on; None gives one the rate of its group again.

        `guard` calls what the optimizer's hooks do.
        """
        known, rates = self._of(optimizer), list(rates)
        if known is None:
            if all(rate is None for _, rate in rates):
                return
            known = _Optimizer(optimizer, guard, self._apart)
            self._known.set(optimizer, weakref.ref(known))
            self.are_used = True
        for tensor, rate in rates:
            if rate is None:
                known.rates.discard(tensor)
            else:
                known.rates.set(tensor, rate)
        if next(known.rates.living(), None) is None:
            known.restore(optimizer)
            known.remove_hooks()
            self._known.discard(optimizer)

    def groups_of(self, optimizer: Optimizer) -> Sequence[ParamGroup]:
        """Return the groups with which an optimizer steps: the script's, followed by those of parameters with other rates."""
        known = self._of(optimizer)
        return optimizer.param_groups if known is None else known.groups(optimizer)

    def restore(self, optimizer: Optimizer) -> None:
        """Restore the groups of an optimizer whose step has raised."""
        known = self._of(optimizer)
        if known is not None:
            known.restore(optimizer)

    def _of(self, optimizer: Optimizer) -> _Optimizer | None:
        reference = self._known.get(optimizer)
        return reference() if reference is not None else None
