"""Say why torch refuses the state of an optimizer whose groups have other sizes, by the names of their members.

Runs on the training thread.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gradtui.probe.model import ModuleTree
from gradtui.probe.script_calls.sites import name_within
from gradtui.probe.torch_private.module_walk import named_parameters
from gradtui.protocol.call_order import CallSite
from gradtui.protocol.events import GroupsRefused

_NAMED = 50
"""Most members of each kind that are named."""


def refused_groups(
    at: float,
    step: int,
    index: int,
    optimizer: Optimizer,
    own: Sequence[Sequence[str]],
    groups: Sequence[Mapping[str, Any]],
    saved: Sequence[Sequence[str]],
    file: str,
    saved_step: int | None,
    site: CallSite | None,
) -> GroupsRefused | None:
    """Return the event for a refused state; None if the groups have the same sizes: torch has refused it for another reason.

    Args:
        at, step: of the event.
        index: of the optimizer.
        optimizer: the optimizer.
        own: the names of its members by group.
        groups: the groups of the state.
        saved: the names of their members; empty where they are unknown.
        file: where the state was loaded from.
        saved_step: the step after which it was saved.
        site: the line of the script.
    """
    own_sizes, sizes = list(map(len, own)), [len(group["params"]) for group in groups]
    if own_sizes == sizes:
        return None
    differs = len(own_sizes) == len(sizes)
    group = next(at for at, (one, other) in enumerate(zip(own_sizes, sizes)) if one != other) if differs else -1
    # Names are only compared if those of both are whole: a module around the model changes them all.
    is_known = [len(each) for each in saved] == sizes and all(map(all, saved)) and all(map(all, own))
    place_of = {name: at for at, names in enumerate(own) for name in names}
    was_in = {name: at for at, names in enumerate(saved) for name in names} if is_known else {}
    is_known = is_known and not place_of.keys().isdisjoint(was_in)
    only_own = [name for name in place_of if name not in was_in] if is_known else list(own[max(group, 0)])
    only_saved = [name for name in was_in if name not in place_of] if is_known else []
    moved = [name for name, at in was_in.items() if name in place_of and place_of[name] != at] if is_known else []
    return GroupsRefused(
        at,
        step,
        index,
        type(optimizer).__name__,
        group,
        own_sizes[group] if differs else len(own_sizes),
        sizes[group] if differs else len(sizes),
        is_known,
        tuple(only_own[:_NAMED]),
        len(only_own),
        tuple(only_saved[:_NAMED]),
        len(only_saved),
        tuple(moved[:_NAMED]),
        file,
        saved_step,
        site,
    )


def names_of(tree: ModuleTree, optimizer: Optimizer) -> list[list[str]]:
    """Return the names of an optimizer's members by group; an empty text for one without a name.

    Before a model is listed, the modules that have the parameters are searched for among all objects of Python.
    """
    groups = [list(group["params"]) for group in optimizer.param_groups]
    names = [[name_within(tree, each) or "" for each in group] for group in groups]
    if all(map(all, names)):
        return names
    wanted = {id(each) for group in groups for each in group}
    found = _names_by_search(wanted)
    return [[found.get(id(each), "") for each in group] for group in groups]


def _names_by_search(wanted: set[int]) -> dict[int, str]:
    """Return names by id of the parameters, from the modules that have most of them, the outermost ones."""
    modules = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
    inner = {id(each) for module in modules for each in vars(module).get("_modules", {}).values()}
    roots = [each for each in modules if id(each) not in inner]
    named = [{id(each): name for name, each in named_parameters(root) if id(each) in wanted} for root in roots]
    found: dict[int, str] = {}
    for names in sorted(named, key=len):
        found.update(names)
    return found
