"""Layers of one kind, so that their norms can be compared: those at the same place of the blocks of a stack, else of one type.

The norms of a block's attention, MLP and LayerNorm differ by orders of magnitude. In the order of the tree they alternate, and
a trend over depth does not show. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import ModuleInfo
from gradtui.run.state.tree.first_folds import stacks_of

_DIGITS = "0123456789"
_ANY = "*"


@dataclass(frozen=True)
class Kind:
    """Modules of one kind, in the order of the tree."""

    name: str
    """Their place in a block, such as `mlp.fc1`, or their type. Empty for modules that are the only one of their kind."""
    modules: tuple[int, ...]


def kinds_of(modules: Sequence[ModuleInfo]) -> list[Kind]:
    """Return the modules with parameters of their own by kind, in the order of the first of each; single ones come last."""
    places = _places(modules)
    owners = [index for index, module in enumerate(modules) if module.own_parameters]
    at_place = Counter((places[index], modules[index].type_name) for index in owners)
    of_type = Counter(
        modules[index].type_name for index in owners if at_place[places[index], modules[index].type_name] == 1
    )
    found: dict[tuple[str, str], list[int]] = {}
    for index in owners:
        key = (places[index], modules[index].type_name)
        if at_place[key] == 1:
            key = ("", key[1]) if of_type[key[1]] > 1 else ("", "")
        found.setdefault(key, []).append(index)
    names = _names(found)
    kinds = [Kind(names[key], tuple(members)) for key, members in found.items()]
    return sorted(kinds, key=lambda kind: not kind.name)


def _places(modules: Sequence[ModuleInfo]) -> list[str]:
    """Return the path of each module, with a star for the number of a block."""
    stacked = {block for blocks in stacks_of(modules).values() for block in blocks}
    alike = Counter(_family(module) for module in modules if module.subtree_modules > 1)
    places: list[str] = []
    for index, module in enumerate(modules):
        is_block = index in stacked or (module.subtree_modules > 1 and alike[_family(module)] > 1)
        name = module.name.rstrip(_DIGITS) + _ANY if is_block and module.name[-1:].isdigit() else module.name
        places.append(f"{places[module.parent]}.{name}" if module.parent >= 0 else name)
    return places


def _family(module: ModuleInfo) -> tuple[int, str, str]:
    """Return what blocks have in common: `layer1` and `layer2` of one type in one module."""
    return module.parent, module.name.rstrip(_DIGITS), module.type_name


def _names(keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return short names: what follows the number of the block, and the whole place where two kinds share that."""
    short = {key: _short(*key) for key in keys}
    shared = Counter(short.values())
    return {
        key: name if not name or shared[name] == 1 else (key[0].partition(".")[2] or key[0] or key[1])
        for key, name in short.items()
    }


def _short(place: str, type_name: str) -> str:
    inside = place.rpartition(f"{_ANY}.")[2] if f"{_ANY}." in place else ""
    return inside or (type_name if not place else ".".join(place.split(".")[-2:]))
