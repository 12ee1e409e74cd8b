"""What a command names: parameters by a selection, or one module by its path. Training thread only."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import nn

from gradtui.probe.model import ModuleTree
from gradtui.probe.runtime import CommandRefused
from gradtui.run.state.tree.selection import NothingSelected, find, spellings, unknown_path
from gradtui.run.text import refusals


def select(selection: str, tree: ModuleTree) -> tuple[str, dict[int, torch.Tensor]]:
    """Return a selection as the tree spells it, and the parameters by index. Raises `CommandRefused` if there is none."""
    try:
        shown, indices = find(selection, tree)
    except NothingSelected as nothing:
        raise CommandRefused(str(nothing)) from None
    if not indices:
        raise CommandRefused(refusals.NO_PARAMETERS)
    return shown, {index: tensor for index in indices if (tensor := tree.parameter_refs[index]()) is not None}


def module_at(path: str, tree: ModuleTree) -> tuple[str, int, nn.Module]:
    """Return the path as in the tree, the module's index and the module. Raises `CommandRefused` if there is none."""
    indices = {info.path: index for index, info in enumerate(tree.modules)}
    for spelling in spellings(path, tree):
        index = indices.get(spelling)
        module = tree.module_refs[index]() if index is not None else None
        if index is not None and module is not None:
            return spelling, index, module
    if any(path in info.names for info in tree.parameters):
        raise CommandRefused(refusals.IS_PARAMETER)
    raise CommandRefused(unknown_path(path, tree))


def module_named(path: str, tree: ModuleTree) -> nn.Module | None:
    """Return the module of this name, None if there is none."""
    with suppress(CommandRefused):
        return module_at(path, tree)[2]
    return None
