"""GT117: an attribute such as `requires_grad` of a module freezes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.events import PlainFlag
from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.diagnostics.parameters import elements, named, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import subtree
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.units import listed


def check(state: RunState) -> Iterator[Match]:
    """Match flags that say the opposite of what the parameters below them do."""
    tree, found = state.tree, state.evidence.flags
    if found is None or found.listing != tree.listing:
        return
    against: dict[tuple[str, bool], dict[str, list[int]]] = {}
    for flag in found.flags:
        if where := _against(tree, flag):
            against.setdefault((flag.name, flag.value), {})[_name(tree, flag)] = where
    for (name, value), holders in against.items():
        indexes = sorted({index for where in holders.values() for index in where})
        is_one = len(indexes) == 1
        freezes, goes_on = (
            ("unfreezes", "stays" if is_one else "stay") if value else ("freezes", "trains" if is_one else "train")
        )
        yield Match(
            f"{name} = {value} is a plain attribute of {listed([*holders])} and {freezes} nothing: {named(tree, indexes)} "
            f"{goes_on}{' frozen' if value else ''}",
            {"flag": name, "value": value, "tensors": len(indexes), "elements": elements(tree, indexes)},
            paths(tree, indexes),
            is_exact=True,
            remedy=None if not value else "call requires_grad_(True), which sets the flag of each parameter",
            key=f"{name}={value}",
        )


def _against(tree: TreeState, flag: PlainFlag) -> list[int]:
    """Return the parameters below a flag that train although it is False, or that are all frozen although it is True.

    One that has been frozen or unfrozen since the first sampled step follows something else than the flag.
    """
    where = subtree(tree.modules[flag.module]) if flag.module >= 0 else range(flag.parameter, flag.parameter + 1)
    first = tree.first_trainable
    same = [index for index in where if len(first) == len(tree.trainable) and tree.trainable[index] == first[index]]
    if not flag.value:
        return [index for index in same if tree.states[index] == ParameterState.TRAINED.value]
    are_frozen = len(same) == len(where) and not any(tree.trainable[index] == "1" for index in where)
    return same if are_frozen and not flag.is_set_by_class else []


def _name(tree: TreeState, flag: PlainFlag) -> str:
    if flag.module < 0:
        return tree.parameters[flag.parameter].path
    module = tree.modules[flag.module]
    return module.path or module.name


RULE = Rule(
    "GT117",
    Level.ERROR,
    "a flag freezes nothing",
    "torch reads requires_grad of parameters only; on a module, or misspelt, it is an attribute that nobody reads",
    "call requires_grad_(False), which sets the flag of each parameter",
    check,
    needs=needs_sample,
)
