"""What is remembered of a file that the script has loaded: figures only, none of its tensors. Training thread."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.script_calls.other_generators import GeneratorState
from gradtui.probe.script_calls.saved_contents import groups_of, optimizer_digest
from gradtui.probe.script_calls.saved_trainings import names_in, rate_of, sizes_of, updates_of, with_state
from gradtui.protocol.call_order import CallSite
from gradtui.protocol.events import CheckpointSaved, SavedOptimizer


@dataclass(eq=False)
class LoadedState:
    """The state of an optimizer in a file."""

    digest: str
    sizes: list[int]
    shapes: list[torch.Size | None]
    """By place: that of the tensors of the entry that are shaped like the parameter."""
    tensors: int
    updates: int | None
    rate: float | None
    """Of its first group."""
    first_rate: float | None
    """The same before its scheduler made a step."""
    names: list[str]
    """By place; empty if unknown."""
    user: weakref.ref[Optimizer] | None = None
    """The optimizer that was given it."""


@dataclass(eq=False)
class LoadedFile:
    """What a file has that was loaded."""

    path: str
    digest: str
    known: CheckpointSaved | None
    states: list[LoadedState]
    schedulers: list[tuple[frozenset[str], int]]
    """The names of the values of each, and its `last_epoch`."""
    random: list[torch.Tensor]
    """Copies of states of the random generator for the CPU."""
    generators: list[GeneratorState]
    """States of other random generators."""
    site: CallSite | None


def state_of(state: Mapping[str, Any], known: CheckpointSaved | None) -> LoadedState:
    """Return what is remembered of an optimizer's state. `known` is what was noted when its file was saved."""
    entries, groups, digest = with_state(state), groups_of(state) or [], optimizer_digest(state)
    saved = next((each for each in known.optimizers if each.digest == digest), None) if known is not None else None
    own = [name for group in groups for name in names_in(group)]
    names = own or ([name for group in saved.groups for name in group.names] if saved is not None else [])
    sizes = sizes_of(state)
    places = [number for group in groups for number in group["params"]]
    return LoadedState(
        digest,
        sizes,
        [_shape(entries[number]) if number in entries else None for number in places],
        len(entries),
        updates_of(entries.values()),
        rate_of(groups[0]) if groups else None,
        rate_of({"lr": groups[0].get("initial_lr")}) if groups else None,
        names if len(names) == sum(sizes) else [],
    )


def _shape(entry: Mapping[str, Any]) -> torch.Size | None:
    """Return the shape of most tensors of an entry that have any dimension: the parameter's, of the usual optimizers."""
    shapes = [each.shape for each in entry.values() if isinstance(each, torch.Tensor) and each.dim()]
    return shapes[0] if shapes and all(each == shapes[0] for each in shapes) else None


def fits(state: LoadedState, optimizer: Optimizer) -> bool:
    """Return whether a state has the groups and shapes of an optimizer."""
    own = [each for group in optimizer.param_groups for each in group["params"]]
    if state.sizes != sizes_of({"param_groups": optimizer.param_groups}):
        return False
    return all(shape is None or shape == each.shape for shape, each in zip(state.shapes, own))


def saved_in(file: LoadedFile) -> tuple[SavedOptimizer, ...]:
    """Return the optimizers that a file has, as they were noted when it was saved."""
    return file.known.optimizers if file.known is not None else ()
