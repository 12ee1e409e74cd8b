"""GT109: DistributedDataParallel waits for parameters that get no gradient, or does not know parameters that train."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gradtui.run.diagnostics.parameters import are, elements, named, paths
from gradtui.run.diagnostics.ranks import open_divergence
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import subtree
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.ranks import between_ranks, since_text
from gradtui.run.text.units import size_text

_WRAPPER = "DistributedDataParallel"
_WAITS = re.compile(r"Parameter indices which did not receive grad for rank \d+: (\d+(?: \d+)*)")


def check(state: RunState) -> Iterator[Match]:
    """Match the error with which the wrapper ends a run, and parameters unfrozen since the wrapper was first seen."""
    tree = state.tree
    wrapped = [subtree(module) for module in tree.modules if module.type_name == _WRAPPER]
    error = state.ended.error if state.ended is not None else None
    found = _WAITS.search(error) if error else None
    if found is not None and wrapped:
        yield from _waits(tree, wrapped[0], [int(each) for each in found[1].split()])
    unknown = [
        index
        for where in wrapped
        for index in range(where.start, where.stop)
        if index < len(tree.first_trainable) and (tree.first_trainable[index], tree.trainable[index]) == ("0", "1")
    ]
    averaged, trainable = _averaged(tree)
    if averaged and averaged < trainable and not unknown:
        yield Match(
            f"DistributedDataParallel averages {size_text(averaged)} of {size_text(trainable)} of gradients: parameters were "
            "added after it was made",
            {"averaged_bytes": averaged, "trainable_bytes": trainable},
            is_exact=True,
            level=Level.WARNING,
            remedy="add the parameters before wrapping the model",
            key="added",
        )
    if averaged and averaged < trainable and unknown:
        yield Match(
            f"{named(tree, unknown)} {are(unknown)} trainable since DistributedDataParallel was made, which does not know "
            f"{'it' if len(unknown) == 1 else 'them'}: the gradient is not averaged over the ranks{_diverged(state, unknown)}",
            {"tensors": len(unknown), "elements": elements(tree, unknown)},
            paths(tree, unknown),
            is_exact=True,
            level=None if _diverged(state, unknown) else Level.WARNING,
            remedy="wrap the model again after the change, or freeze after wrapping with find_unused_parameters=True",
            key="unknown",
        )


def _diverged(state: RunState, unknown: list[int]) -> str:
    """Return since when ranks have other values of these parameters, and which ranks; empty if they are not known to differ."""
    found = open_divergence(state, "checksums")
    if found is None or set(found.names).isdisjoint(state.tree.parameters[index].path for index in unknown):
        return ""
    return f", and the values differ {between_ranks(found)} {since_text(found)}"


def _averaged(tree: TreeState) -> tuple[int, int]:
    """Return the bytes of the wrappers' buckets, 0 if unknown, and those of the gradients of what is trainable in them.

    A parameter that was frozen only between wrapping and the first step has its place in the buckets.
    """
    buckets = sum(tree.gradient_flow.buckets) if tree.gradient_flow is not None else 0
    trainable = sum(
        info.bytes
        for module in tree.modules
        if module.type_name == _WRAPPER
        for index, info in enumerate(tree.parameters)
        if index in subtree(module) and tree.trainable[index : index + 1] == "1"
    )
    return buckets, trainable


def _waits(tree: TreeState, where: range, indices: list[int]) -> Iterator[Match]:
    """Match the parameters with these indices among those that the wrapper reduces: the trainable ones, in their order."""
    reduced = [index for index in range(where.start, where.stop) if tree.trainable[index : index + 1] != "0"]
    lost = [reduced[index] for index in indices if index < len(reduced)]
    if lost:
        which, got = ("index", "it got") if len(lost) == 1 else ("indices", "they got")
        words = ", ".join(map(str, indices[:8])) + (", …" if len(indices) > 8 else "")
        yield Match(
            f"DistributedDataParallel waits for {named(tree, lost)} ({which} {words}): {got} no gradient",
            {"tensors": len(lost), "elements": elements(tree, lost)},
            paths(tree, lost),
            is_exact=True,
            call="backward",
            key="waits",
        )


RULE = Rule(
    "GT109",
    Level.ERROR,
    "DistributedDataParallel and the model disagree about what trains",
    "it reduces the parameters that were trainable when it was made, and waits for all of them in each backward",
    "freeze or remove what forward does not use before wrapping, or pass find_unused_parameters=True",
    check,
    explains=frozenset({"GT201", "GT604"}),
    needs=lambda state: (
        None
        if any(module.type_name == _WRAPPER for module in state.tree.modules)
        else "no model is in DistributedDataParallel"
    ),
)
