"""Find the live module for a path in a command. Training thread only."""

from __future__ import annotations

from torch import nn

from gradtui.probe.model.module_tree import ModuleTree
from gradtui.probe.runtime import CommandRefused
from gradtui.state.selection import spellings, unknown_path


def module_at(path: str, tree: ModuleTree) -> tuple[str, int, nn.Module]:
    """Return the path as in the tree, the module's index and the module. Raises `CommandRefused` if there is none."""
    indices = {info.path: index for index, info in enumerate(tree.modules)}
    for spelling in spellings(path, tree):
        index = indices.get(spelling)
        module = tree.module_refs[index]() if index is not None else None
        if index is not None and module is not None:
            return spelling, index, module
    if any(path in info.names for info in tree.parameters):
        raise CommandRefused(f"{path} is a parameter, not a module")
    raise CommandRefused(unknown_path(path, tree))
