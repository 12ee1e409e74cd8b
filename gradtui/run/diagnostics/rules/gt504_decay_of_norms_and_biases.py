"""GT504: weight decay applies to biases and to the parameters of normalisation layers."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.parameters import elements, named, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_optimizer, optimizer_name
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree_state import TreeState


def check(state: RunState) -> Iterator[Match]:
    """Match optimizers with such parameters in a group that has a weight decay."""
    tree, read = state.tree, state.groups.optimizers if state.groups is not None else ()
    for number, (optimizer, groups) in enumerate(zip(state.optimizers, read)):
        decays = [group.weight_decay or 0.0 for group in groups]
        found = {
            index: decays[group]
            for index, group in zip(optimizer.parameters, optimizer.group_of)
            if not optimizer.freed and group < len(decays) and decays[group] > 0 and _is_bias_or_norm(tree, index)
        }
        if found:
            yield Match(
                f"{optimizer_name(state, number)} has a weight decay of {max(found.values()):g} for biases and parameters of "
                f"normalisation: {named(tree, list(found))}",
                {"tensors": len(found), "elements": elements(tree, found), "weight_decay": max(found.values())},
                paths(tree, found),
                is_exact=True,
                key=str(number),
            )


def _is_bias_or_norm(tree: TreeState, index: int) -> bool:
    info = tree.parameters[index]
    is_bias = "bias" in info.path.rpartition(".")[2]
    is_norm = "Norm" in tree.modules[info.module].type_name
    return len(info.shape) == 1 and (is_bias or is_norm) and tree.trainable[index] == "1"


def _needs(state: RunState) -> str | None:
    groups = state.groups.optimizers if state.groups is not None else ()
    has_decay = any(group.weight_decay for each in groups for group in each)
    return needs_optimizer(state) or (None if has_decay else "no optimizer had a weight decay")


RULE = Rule(
    "GT504",
    Level.NOTE,
    "weight decay applies to biases and normalisation",
    "decay is meant to limit weights; a bias gains nothing from it, and it pulls the scale of a normalisation towards 0",
    "put these parameters into a group of their own with weight_decay=0",
    check,
    needs=_needs,
    is_default=False,
)
