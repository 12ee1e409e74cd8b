"""Add parameters to optimizers for commands, and remove them again.

A checkpoint of an optimizer names its parameters by their positions. While an optimizer holds parameters that a command has
added, its `state_dict()` does not fit the optimizer that the script constructs. So a freeze removes them again, and this
module keeps their state until the next unfreeze. It removes only what a command has added, and only while the script has
not rearranged the group. Training thread only, at a boundary.

An orphan joins a sibling's param group: `add_param_group` would break learning rate schedulers that have counted the groups.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import field
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.named_tuple import NamedTuple
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.model.module_tree import ModuleTree
from gradtui.probe.model.optimizer_membership import Membership


@dataclass(eq=False)
class _Home:
    """A param group as a command found it when it added parameters to it."""

    optimizer: weakref.ref[Optimizer]
    group: int
    members: int
    """The id of the list of the group's parameters. A script that rearranges its groups makes another list."""
    own: tuple[weakref.ref[torch.Tensor], ...]
    """The script's own parameters in the group, in order."""


@dataclass(eq=False)
class _Added:
    tensor: weakref.ref[torch.Tensor]
    home: _Home
    since_step: int | None = None
    """The step after which it was added; None while it is removed again."""
    has_trained: bool = False
    """Whether it was in the optimizer during a step."""
    aside: list[tuple[weakref.ref[Optimizer], dict[str, Any]]] = field(default_factory=list)
    """Its state in each optimizer while it is removed."""


class Left(NamedTuple):
    """The parameters removed from the optimizers, by the optimizers' class names."""

    out: Counter[str]
    stayed: Counter[str]
    """Those that stay, because the script has rearranged their group."""
    added_still: Counter[str]
    """Those that other commands have added and that are still in an optimizer."""


class Waiting(NamedTuple):
    """The state of a parameter that waits for its next unfreeze."""

    tensor: weakref.ref[torch.Tensor]
    has_trained: bool
    states: tuple[tuple[weakref.ref[Optimizer], dict[str, Any]], ...]
    """A copy of the state for each optimizer."""


class AddedParameters:
    """Adds parameters to optimizers, removes them, and keeps their state meanwhile.

    `optimizers` returns every living optimizer: some share their groups.
    """

    def __init__(self, optimizers: Callable[[], Sequence[Optimizer]]) -> None:
        self._optimizers = optimizers
        self._added: dict[int, _Added] = {}
        """Keyed by the id of the parameter."""

    def __bool__(self) -> bool:
        """Whether a command has ever added a parameter that is still alive."""
        return bool(self._added)

    def plan(
        self, orphans: Mapping[int, torch.Tensor], tree: ModuleTree, optimizers: Sequence[Optimizer]
    ) -> list[Membership]:
        """Plan as `optimizer_membership.plan` does, but return parameters to the group in which they were before."""
        planned = membership.plan(orphans, tree, optimizers)
        return [self._at_home(member, optimizers) for member in planned] if self._added else planned

    @contextmanager
    def joining(self, planned: Sequence[Membership], step: int) -> Iterator[None]:
        """Add these parameters with their kept state; remove them again if the body raises."""
        homes: dict[int, _Home] = {}
        try:
            for member in planned:
                home = homes.get(id(member.group)) or homes.setdefault(id(member.group), self._home_of(member))
                membership.append(member)
                self._remember(member.tensor, home).since_step = step
            self._give_back([self._added[id(member.tensor)] for member in planned])
            for member in planned:
                membership.begin(member.optimizer, member.group, member.tensor)
            yield
        except BaseException:
            self.leave([member.tensor for member in planned], step)
            raise

    def leave(self, tensors: Iterable[torch.Tensor], step: int) -> Left:
        """Remove those of these parameters that are in an optimizer because of a command."""
        out: Counter[str] = Counter()
        stayed: Counter[str] = Counter()
        by_home: dict[int, tuple[_Home, list[_Added]]] = {}
        for added in [found for tensor in tensors if (found := self._inside(tensor)) is not None]:
            by_home.setdefault(id(added.home), (added.home, []))[1].append(added)
        for home, leaving in by_home.values():
            optimizer = home.optimizer()
            if optimizer is None:
                continue
            name = type(optimizer).__name__
            group = self._as_it_was(optimizer, home)
            (out if group is not None else stayed)[name] += len(leaving)
            for added in leaving:
                added.has_trained |= added.since_step is not None and step > added.since_step
                added.since_step = None
            if group is not None:
                self._take_out(group, {id(added.tensor()) for added in leaving})
        still = Counter(
            type(optimizer).__name__
            for added in self._added.values()
            if added.since_step is not None and (optimizer := added.home.optimizer()) is not None
        )
        return Left(out, stayed, still)

    @contextmanager
    def away(self, optimizer: Optimizer, tree: ModuleTree, step: int) -> Iterator[None]:
        """Remove from this optimizer what commands have added to it while the body runs."""
        added = [tensor for tensor in membership.parameters(optimizer) if self.holds(tensor)]
        self.leave(added, step)
        try:
            yield
        finally:
            orphans = {index: tensor for tensor in added if (index := tree.owns(tensor)) is not None}
            with self.joining(self.plan(orphans, tree, [optimizer]), step):
                pass

    def holds(self, tensor: torch.Tensor) -> bool:
        """Return whether this parameter is in an optimizer because of a command."""
        return self._inside(tensor) is not None

    def inside(self) -> list[torch.Tensor]:
        """Return every parameter that is in an optimizer because of a command."""
        return self._living(lambda added: added.since_step is not None)

    def trained_outside(self) -> list[torch.Tensor]:
        """Return every parameter that has trained because of a command and is removed from the optimizer again."""
        return self._living(lambda added: added.since_step is None and added.has_trained)

    def states(self) -> list[dict[str, Any]]:
        """Return all state kept here."""
        return [entries for added in self._added.values() for _, entries in added.aside]

    def state(self, optimizer: Optimizer, tensor: torch.Tensor) -> Any:
        """Return the state that an optimizer has for a parameter, in the optimizer or kept here; None if there is none."""
        kept = self._added.get(id(tensor))
        for reference, entries in kept.aside if kept is not None else ():
            if reference() is optimizer:
                return entries
        return optimizer.state.get(tensor)

    def waiting(self) -> list[Waiting]:
        """Return copies of all state kept here, for `set_waiting`."""
        return [
            Waiting(added.tensor, added.has_trained, tuple((of, deepcopy(entries)) for of, entries in added.aside))
            for added in self._added.values()
        ]

    def set_waiting(self, then: Sequence[Waiting]) -> None:
        """Keep the state that `waiting` has returned, and no other. What is in an optimizer now stays there."""
        known = {id(tensor): each for each in then if (tensor := each.tensor()) is not None}
        for key, added in list(self._added.items()):
            before = known.get(key)
            if added.since_step is not None:
                continue
            if before is None:
                del self._added[key]
                continue
            added.has_trained = before.has_trained
            added.aside.clear()
            for reference, entries in before.states:
                if (optimizer := reference()) is not None:
                    self._keep(added, optimizer, deepcopy(entries))

    def waiting_bytes(self, tensors: Iterable[torch.Tensor]) -> int:
        """Return the bytes of the state of these parameters that is kept here."""
        known = (self._added[id(tensor)] for tensor in tensors if id(tensor) in self._added)
        values = (value for added in known for _, state in added.aside for value in state.values())
        return sum(
            value.nbytes for value in values if isinstance(value, torch.Tensor) and value.layout is torch.strided
        )

    def put(self, optimizer: Optimizer, tensor: torch.Tensor, entries: dict[str, Any]) -> None:
        """Set a parameter's state: in the optimizer if that owns the parameter, else it is kept here."""
        added = self._added.get(id(tensor))
        if added is None or id(tensor) in membership.owners([optimizer]):
            optimizer.state[tensor] = entries
        else:
            self._keep(added, optimizer, entries)

    def _living(self, chosen: Callable[[_Added], bool]) -> list[torch.Tensor]:
        return [tensor for added in self._added.values() if chosen(added) and (tensor := added.tensor()) is not None]

    def _inside(self, tensor: torch.Tensor) -> _Added | None:
        added = self._added.get(id(tensor))
        return added if added is not None and added.since_step is not None and added.tensor() is tensor else None

    def _at_home(self, member: Membership, optimizers: Sequence[Optimizer]) -> Membership:
        added = self._added.get(id(member.tensor))
        for optimizer in optimizers:
            if added is not None and optimizer is added.home.optimizer():
                groups = optimizer.param_groups[added.home.group :]
                return member._replace(optimizer=optimizer, group=groups[0]) if groups else member
        return member

    def _home_of(self, member: Membership) -> _Home:
        index = next(number for number, group in enumerate(member.optimizer.param_groups) if group is member.group)
        members = member.group["params"]
        own = tuple(weakref.ref(tensor) for tensor in members if not self.holds(tensor))
        return _Home(weakref.ref(member.optimizer), index, id(members), own)

    def _remember(self, tensor: torch.Tensor, home: _Home) -> _Added:
        key, known = id(tensor), self._added
        if key not in known:
            known[key] = _Added(weakref.ref(tensor, lambda _: known.pop(key, None)), home)
        known[key].home = home
        return known[key]

    def _as_it_was(self, optimizer: Optimizer, home: _Home) -> dict[str, Any] | None:
        """Return the group if the script has at most added parameters to it since, else None."""
        groups = optimizer.param_groups
        group = groups[home.group] if home.group < len(groups) else None
        if group is None or id(group["params"]) != home.members:
            return None
        own = [tensor for tensor in group["params"] if not self.holds(tensor)]
        is_whole = len(own) >= len(home.own) and all(known() is tensor for known, tensor in zip(home.own, own))
        return group if is_whole else None

    def _take_out(self, group: dict[str, Any], leaving: Collection[int]) -> None:
        members = group["params"]
        staying = [index for index, tensor in enumerate(members) if id(tensor) not in leaving]
        taken = [tensor for tensor in members if id(tensor) in leaving]
        # In place: schedulers and wrappers hold these lists.
        for listed in (members, group.get("param_names")):
            if listed is not None:
                listed[:] = [listed[index] for index in staying]
        for optimizer in self._optimizers():
            owned = membership.owners([optimizer])
            for tensor in taken:
                if tensor in optimizer.state and id(tensor) not in owned:
                    self._keep(self._added[id(tensor)], optimizer, optimizer.state.pop(tensor))

    def _keep(self, added: _Added, optimizer: Optimizer, entries: dict[str, Any]) -> None:
        # A cycle would keep the state until Python's collector comes.
        mine = weakref.ref(added)

        def forget(dead: weakref.ref[Optimizer]) -> None:
            if (living := mine()) is not None:
                living.aside[:] = [kept for kept in living.aside if kept[0] is not dead]

        added.aside.append((weakref.ref(optimizer, forget), entries))

    def _give_back(self, returned: Sequence[_Added]) -> None:
        if not any(added.aside for added in returned):
            return
        owned = {id(optimizer): membership.owners([optimizer]).keys() for optimizer in self._optimizers()}
        for added in returned:
            tensor = added.tensor()
            for reference, entries in added.aside:
                optimizer = reference()
                if tensor is not None and optimizer is not None and id(tensor) in owned.get(id(optimizer), ()):
                    optimizer.state[tensor] = entries
            added.aside.clear()


def joined_words(planned: Iterable[Membership], joined: AddedParameters) -> str:
    """Return how many parameters joined each optimizer, as a continuation of the answer to an unfreeze."""
    optimizers = {id(member.optimizer): member.optimizer for member in planned}
    counts = Counter(id(member.optimizer) for member in planned)
    words = []
    for key, optimizer in optimizers.items():
        held = list(membership.parameters(optimizer))
        own = sum(not joined.holds(tensor) for tensor in held)
        name = type(optimizer).__name__
        words.append(
            f"; {counts[key]} joined {name}, whose state_dict() holds {len(held):,} parameters instead of {own:,}"
        )
    return "".join(words)


def left_words(left: Left) -> str:
    """Return how many parameters left each optimizer, as a continuation of the answer to a freeze."""
    words = []
    for name, count in left.out.items():
        still = left.added_still[name]
        rest = f"still holds {still:,} that commands have added" if still else "is the script's own again"
        words.append(f"; {count} left {name}, whose state_dict() {rest}")
    for name, count in left.stayed.items():
        words.append(f"; {count} stay in {name}, since the script has arranged its groups anew")
    return "".join(words)
