"""Where the script made a call, and the names of its parameters. Training thread."""

from __future__ import annotations

import torch

from gradtui.probe.model import ModuleTree
from gradtui.protocol.call_order import CallSite
from gradtui.system.own_frames import script_entry


def site_of(call: str) -> CallSite | None:
    """Return the line of the script that is running."""
    entry = script_entry()
    return CallSite(call, *entry[:2]) if entry is not None else None


def path_of(tree: ModuleTree, parameter: torch.Tensor | None) -> str | None:
    """Return the path of a listed parameter, None for any other."""
    index = tree.owns(parameter)
    return tree.parameters[index].path if index is not None else None


def name_within(tree: ModuleTree, parameter: torch.Tensor | None) -> str | None:
    """Return the path of a listed parameter without that of its model's root, None for any other."""
    index = tree.owns(parameter)
    if index is None:
        return None
    path, root = tree.parameters[index].path, tree.modules[tree.roots[tree.owners[index]]].path
    return path.removeprefix(f"{root}.") if root else path
