"""Note what the script saves of its training: a fingerprint in the recording and in a file of gradtui's own. Training thread.

A state of an optimizer has no names, only places. The names are those of the living optimizer that the state is of.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.probe.runtime import ranks
from gradtui.probe.script_calls import fingerprints
from gradtui.probe.script_calls.saved_contents import Contents, checksum_of, contents_of, groups_of, optimizer_digest
from gradtui.probe.script_calls.schedulers import Schedulers
from gradtui.probe.script_calls.sites import name_within
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import CheckpointSaved, SavedGroup, SavedOptimizer, SavedScheduler

_SPENT_S, _SHARE = 1.0, 0.01
"""Seconds, and share of the run, that all fingerprints of saved files may take, and the same for loaded files. A script may
save at every step, and load a file for every sample."""
_MAX_NAMES = 20_000


class SavedTrainings:
    """Makes the fingerprints of what is saved."""

    def __init__(self, context: ProbeContext, schedulers: Schedulers) -> None:
        self._emit, self._clock, self._models = context.emit, context.clock, context.models
        self._counter, self._schedulers = context.counter, schedulers
        self._budget = Budget()

    def saving(self, saved: Any, file: Any, *, is_sorted: bool = False) -> bool:
        """Note what is about to be saved. Return whether it is of a training."""
        if not isinstance(saved, Mapping) or not self._budget.is_left():
            return False
        with self._budget:
            contents = contents_of(saved, is_sorted=is_sorted)
            if not contents.is_of_training:
                return False
            event = self._fingerprint(contents, file)
            self._emit(event)
            fingerprints.keep(event)
            return True

    def _fingerprint(self, contents: Contents, file: Any) -> CheckpointSaved:
        parameters = self.parameters()
        living = [each for each in self._schedulers.living() if type(getattr(each, "last_epoch", None)) is int]
        return CheckpointSaved(
            self._clock.at(),
            self._counter.steps,
            path_of(file),
            contents.digest,
            script(),
            os.getpid(),
            tuple(self._optimizer(each) for each in contents.optimizers),
            tuple(SavedScheduler(type(each).__name__, each.last_epoch) for each in living),
            bool(contents.schedulers),
            bool(contents.random),
            checksum_of(parameters),
            len(parameters),
            ranks.rank(),
        )

    def parameters(self) -> list[torch.Tensor]:
        """Return the living parameters of all listed models."""
        return [each for reference in self._models.tree.parameter_refs if (each := reference()) is not None]

    def _optimizer(self, state: Mapping[str, Any]) -> SavedOptimizer:
        owner = self._owner(state)
        names = iter(self._names(owner)) if owner is not None else None
        own = iter(owner.param_groups) if owner is not None else None
        groups = []
        for group in groups_of(state) or ():
            members = next(own)["params"] if own is not None else ()
            frozen = tuple(at for at, each in enumerate(members) if not each.requires_grad)
            found = next(names) if names is not None else names_in(group)
            groups.append(SavedGroup(len(group["params"]), found, frozen, rate_of(group)))
        return SavedOptimizer(
            optimizer_digest(state),
            type(owner).__name__ if owner is not None else "",
            tuple(groups),
            len(with_state(state)),
            updates_of(with_state(state).values()),
        )

    def _owner(self, state: Mapping[str, Any]) -> Optimizer | None:
        """Return the living optimizer that a state is of: by its tensors, or by the sizes of its groups if one has these."""
        sizes = sizes_of(state)
        alike = [
            each for each in self._models.live_optimizers() if sizes_of({"param_groups": each.param_groups}) == sizes
        ]
        given = {id(value) for entry in with_state(state).values() for value in entry.values()}
        for each in alike:
            if any(
                id(value) in given
                for entry in each.state.values()
                if isinstance(entry, dict)
                for value in _tensors(entry)
            ):
                return each
        return alike[0] if len(alike) == 1 else None

    def _names(self, optimizer: Optimizer) -> list[tuple[str, ...]]:
        groups = [group["params"] for group in optimizer.param_groups]
        if sum(map(len, groups)) > _MAX_NAMES:
            return [()] * len(groups)
        return [tuple(name_within(self._models.tree, each) or "" for each in group) for group in groups]


class Budget:
    """The time that may be spent. It is a context, which adds the time within it."""

    def __init__(self) -> None:
        self._began, self._spent_s, self._entered = perf_counter(), 0.0, 0.0

    def is_left(self) -> bool:
        """Return whether some of it is left."""
        return self._spent_s <= _SPENT_S + _SHARE * (perf_counter() - self._began)

    def __enter__(self) -> None:
        self._entered = perf_counter()

    def __exit__(self, *_: object) -> None:
        self._spent_s += perf_counter() - self._entered


def sizes_of(state: Mapping[str, Any]) -> list[int]:
    """Return the numbers of members of each group."""
    return [len(group["params"]) for group in state["param_groups"]]


def with_state(state: Mapping[str, Any]) -> dict[Any, Mapping[str, Any]]:
    """Return the entries of a state that have a value, by the number of the parameter."""
    return {
        number: entry
        for number, entry in state["state"].items()
        if isinstance(entry, Mapping) and any(value is not None for value in entry.values())
    }


def updates_of(entries: Any) -> int | None:
    """Return the largest step counter of an optimizer's entries; None where they have none."""
    found = [made for entry in entries if (made := updates_in(entry)) is not None]
    return max(found, default=None)


def updates_in(entry: Mapping[str, Any]) -> int | None:
    """Return the step counter of an entry; None where it has none, or has it on a device."""
    made = entry.get("step", entry.get("n_iter"))
    if isinstance(made, torch.Tensor) and made.numel() == 1 and made.is_cpu:
        made = made.item()
    return int(made) if isinstance(made, (int, float)) and abs(made) < 1 << 53 else None


def names_in(group: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the members that a group itself has: `param_names`, or names in the place of numbers."""
    names = group.get("param_names") or group["params"]
    are_names = len(names) == len(group["params"]) <= _MAX_NAMES and all(type(each) is str for each in names)
    return tuple(names) if are_names else ()


def rate_of(group: Mapping[str, Any]) -> float | None:
    """Return the learning rate of a group; None where it has none, or has it on a device."""
    rate = group.get("lr")
    if isinstance(rate, torch.Tensor):
        return float(rate) if rate.is_cpu and rate.numel() == 1 else None
    return float(rate) if isinstance(rate, (int, float)) else None


def path_of(file: Any) -> str:
    """Return the real path of a file as it was given to torch; empty for a buffer."""
    try:
        # Lightning opens its files itself.
        file = getattr(file, "name", None) if isinstance(file, io.IOBase) else file
        return os.path.realpath(os.fsdecode(file)) if isinstance(file, (str, bytes, os.PathLike)) else ""
    except (TypeError, ValueError, OSError, AttributeError):
        return ""


def script() -> str:
    """Return the path of the script that runs; empty for a program that runs the scripts of many, such as a notebook's."""
    path = os.path.realpath(sys.argv[0]) if sys.argv and sys.argv[0] else ""
    return path if path.endswith(".py") and "-packages" not in path else ""


def _tensors(entry: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    return (each for each in entry.values() if isinstance(each, torch.Tensor))
