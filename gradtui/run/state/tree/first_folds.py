"""Which modules are stacks of repeated blocks, and which modules of a new tree are folded. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradtui.protocol.vocabulary import ModuleInfo

_MIN_BLOCKS = 3
_BLANK_ROWS = 6
"""If more rows than this would stay blank, one module more is unfolded although not all that is in it fits."""


def stacks_of(modules: Sequence[ModuleInfo]) -> dict[int, tuple[int, ...]]:
    """Return the blocks of each module that is a stack: at least three, of one type, with numbers as names.

    Children without parameters, such as activation functions, do not count.
    """
    children: dict[int, list[int]] = {}
    for index, module in enumerate(modules):
        if module.parent >= 0 and module.subtree_parameters:
            children.setdefault(module.parent, []).append(index)
    return {
        parent: tuple(blocks)
        for parent, blocks in children.items()
        if len(blocks) >= _MIN_BLOCKS
        and len({modules[block].type_name for block in blocks}) == 1
        and all(modules[block].name.isdigit() for block in blocks)
    }


def first_folds(
    modules: Sequence[ModuleInfo], own_rows: Sequence[int], stacks: Mapping[int, Sequence[int]], room: int
) -> set[int]:
    """Return the modules to fold so that the rows fill `room`. The first level is always shown.

    Modules are unfolded level by level as long as they fit: siblings of one type together, those with most parameters first.
    Stacks stay folded until all else that fits is unfolded. What does not fit is unfolded only where many rows would stay
    blank: a stack first, then the module with most parameters.

    Args:
        modules: the modules, depth-first.
        own_rows: how many tensors of its own each module shows.
        stacks: the blocks of each stack.
        room: rows to fill.
    """
    sizes = list(own_rows)
    children: dict[int, list[int]] = {}
    for index, module in enumerate(modules):
        if module.parent >= 0:
            sizes[module.parent] += 1
            children.setdefault(module.parent, []).append(index)
    folded = {index for index, size in enumerate(sizes) if size}
    roots = [index for index, module in enumerate(modules) if module.parent < 0]
    rows = len(roots) + sum(sizes[root] for root in roots)
    folded.difference_update(roots)
    level = [child for root in roots for child in children.get(root, ())]
    held: list[int] = []
    large: list[int] = []
    while level:
        held += [index for index in level if index in stacks]
        others = [index for index in level if index not in stacks and sizes[index]]
        opened, rows = _unfold(others, modules, sizes, folded, rows, room)
        large += [index for index in others if index in folded]
        level = [child for index in opened for child in children.get(index, ())]
        if not level:
            chosen = next((index for index in held if rows + sizes[index] <= room), None)
            if chosen is None and room - rows > _BLANK_ROWS:
                by_size = sorted(large, key=lambda index: -modules[index].subtree_parameters)
                chosen = next(iter(held or by_size), None)
            if chosen is not None:
                folded.discard(chosen)
                rows += sizes[chosen]
                (held if chosen in held else large).remove(chosen)
                level = children.get(chosen, [])
    return folded


def _unfold(
    level: Sequence[int], modules: Sequence[ModuleInfo], sizes: Sequence[int], folded: set[int], rows: int, room: int
) -> tuple[list[int], int]:
    """Unfold siblings of one type together, if they fit; return the unfolded modules and the new number of rows."""
    groups: dict[tuple[int, str], list[int]] = {}
    for index in level:
        if sizes[index]:
            groups.setdefault((modules[index].parent, modules[index].type_name), []).append(index)
    opened = []
    for group in sorted(groups.values(), key=lambda group: -sum(modules[index].subtree_parameters for index in group)):
        more = sum(sizes[index] for index in group)
        if rows + more <= room:
            rows += more
            folded.difference_update(group)
            opened += group
    return opened, rows
