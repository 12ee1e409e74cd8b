"""Which modules run in compiled code, where gradtui checkpoints nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gradtui.run.state.tree_state import TreeState


def is_compiled(tree: TreeState, module: int) -> bool:
    """Return whether any of a module runs in compiled code: the module, one around it, or one within it.

    `SetCheckpointing` is refused for such a module.
    """
    return runs_compiled(tree, module) or any(
        module <= each < module + tree.modules[module].subtree_modules for each in tree.compiled
    )


def runs_compiled(tree: TreeState, module: int) -> bool:
    """Return whether all of a module runs in compiled code."""
    while tree.compiled and module >= 0:
        if module in tree.compiled:
            return True
        module = tree.modules[module].parent
    return False


def not_compiled(tree: TreeState, modules: Iterable[int]) -> list[int]:
    """Return those of the modules of which nothing runs in compiled code."""
    return [module for module in modules if not is_compiled(tree, module)]
