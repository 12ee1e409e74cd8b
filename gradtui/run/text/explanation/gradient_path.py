"""Describes the path of a gradient from the loss to a row: a sentence, and a stop for each module or stack of blocks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from gradtui.protocol.commands import TraceGradient
from gradtui.protocol.events import GradientPathFound
from gradtui.protocol.vocabulary import MAX_PATHS, GradientHop, ParameterState
from gradtui.run.state.norms.shown_norms import shown_norms
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import gets_gradient, subtree, total_norm_at
from gradtui.run.state.series import joint_norm
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.explanation.states import why_never
from gradtui.run.text.units import number_text, plural, share_text
from gradtui.system.printable import printable

_FOLDED = 3
"""This many consecutive blocks are folded into one line."""
_PASSED_MODULES = frozenset({ParameterState.FLOW_THROUGH.value})
_HAS_GRADIENT = (ParameterState.TRAINED, ParameterState.ZERO, ParameterState.NOT_FINITE, ParameterState.ORPHAN)


class Stop(NamedTuple):
    """A module, a stack of blocks or a parameter on the path."""

    name: str
    letters: str = ""
    """The states of its parameters."""
    note: str = ""
    mark: str = "↓"
    short_note: str = ""
    """Replaces the note if that does not fit."""


def path_sentence(state: RunState, path: str) -> str | None:
    """Say which way the gradient takes to a module or parameter, or why it does not come; None if nobody asked for it."""
    chain = state.tree.gradient_paths.get(path)
    if chain is not None:
        return _sentence(state, chain)
    asked = any(isinstance(command, TraceGradient) and command.path == path for command in state.pending.values())
    if not asked and path not in state.tree.followed:
        return None
    held = " Training is paused: esc, then n runs one step." if state.paused else ""
    return f"The gradient is followed from the loss to it in the next step.{held}"


def path_stops(state: RunState, path: str) -> list[Stop]:
    """Return the stops of this path, the loss first; empty where it is unknown, or where no more than the loss is known."""
    chain = state.tree.gradient_paths.get(path)
    stops = list(_stops(state, chain)) if chain is not None else []
    return stops if len(stops) > 1 else []


def _sentence(state: RunState, chain: GradientPathFound) -> str:
    tree, path, at = state.tree, chain.gradient, f"(step {chain.step:,})."
    if not path.found:
        return f"{_why_not(tree, chain)} {at}"
    hops = [*path.hops, *path.onward[1:]]
    modules = {hop.module for hop in hops if hop.module >= 0}
    frozen = sum(set(_letters(tree, module)) == _PASSED_MODULES for module in modules)
    passed = f", {frozen:,} of them frozen" if frozen else ""
    operations = plural(sum(hop.operations for hop in hops), "operation")
    through = f"From the loss through {operations} of {plural(len(modules), 'module')}{passed}"
    most = f"more than {MAX_PATHS:,}" if path.path_count >= MAX_PATHS else f"{path.path_count:,}"
    ways = f"{through}, the shortest of {most} ways" if path.path_count > 1 else f"{through}, the only way"
    if chain.parameter >= 0 and chain.parameter == path.upstream:
        uses = f"; {path.use_count:,} operations take it, and its gradient is the sum" if path.use_count > 1 else ""
        return f"{ways}{uses} {at}"
    within = subtree(tree.modules[chain.module]) if chain.parameter < 0 else range(0)
    trains = gets_gradient(tree, within)
    if path.upstream >= 0:
        upstream = printable(tree.parameters[path.upstream].path)
        if trains:
            return f"{ways}; it reaches parameters in it and passes on to {upstream} {at}"
        return f"{through}: here it only passes, on its way to {upstream} {at}"
    if trains:
        return f"{ways}; it ends at parameters in it {at}"
    return f"{through}; it ends in its module, since nothing before that needs a gradient {at}"


def _why_not(tree: TreeState, chain: GradientPathFound) -> str:
    path = chain.gradient
    if path.hidden:
        return (
            "Unknown: one operation on the path stands for the code of several modules, as with torch.compile and reentrant "
            "checkpoints"
        )
    if not path.operations:
        return "No graph was searched: this step had no backward, or its graph is too deep to search safely"
    if not path.whole:
        return f"Not among the {path.operations:,} operations nearest the loss, and the graph has more than gradtui searches"
    if (
        chain.parameter >= 0
        and tree.states[chain.parameter] in _HAS_GRADIENT
        and tree.trainable[chain.parameter] == "1"
    ):
        return (
            "No operation of this backward leads to it, though it has a gradient: from another backward, or from what shards "
            "parameters"
        )
    reason = why_never(tree, chain.module)
    return f"The gradient never comes here{': ' + printable(reason) if reason is not None else ''}"


def _stops(state: RunState, chain: GradientPathFound) -> Iterator[Stop]:
    tree = state.tree
    hops = list(chain.gradient.hops)
    first = hops.pop(0) if hops and hops[0].module < 0 else None
    yield Stop("loss", note=_names(first.names) if first is not None else "", mark="●")
    here = "" if chain.parameter >= 0 else tree.modules[chain.module].path
    yield from _folded(state, hops, chain)
    if chain.parameter >= 0:
        name = printable(tree.parameters[chain.parameter].path)
        letter = tree.states[chain.parameter]
        if not chain.gradient.found:
            yield Stop(name, letter, "never comes here", "×")
            return
        if chain.parameter == chain.gradient.upstream:
            yield Stop(name, letter, *_norm(state, chain.parameter))
            return
        yield Stop(name, letter, "none is computed for it", "◆")
    elif not chain.gradient.found:
        yield Stop(printable(here or tree.modules[chain.module].name), "", "never comes here", "×")
        return
    yield from _folded(state, chain.gradient.onward[1:], chain)
    if chain.gradient.upstream >= 0:
        name = printable(tree.parameters[chain.gradient.upstream].path)
        yield Stop(name, tree.states[chain.gradient.upstream], *_norm(state, chain.gradient.upstream))


def _folded(state: RunState, hops: Iterable[GradientHop], chain: GradientPathFound) -> Iterator[Stop]:
    """Yield a line per hop. A stack of similar blocks is one line, except for the block that contains the target."""
    tree, within = state.tree, chain.module if chain.parameter < 0 and chain.gradient.found else None
    own = _block(tree, chain.module)
    for key, group in groupby(hops, lambda hop: _block_kind(tree, hop.module, own)):
        listed = list(group)
        blocks = list(dict.fromkeys(_block(tree, hop.module) for hop in listed))
        if key is None or len(blocks) < _FOLDED:
            yield from (_single(state, hop, within) for hop in listed)
            continue
        first, last = blocks[0], blocks[-1]
        note = f"{plural(len(blocks), 'block')}, {plural(sum(hop.operations for hop in listed), 'operation')}"
        name = f"{printable(tree.modules[first].path)} … {printable(tree.modules[last].name)}"
        yield Stop(name, _letters(tree, first), note, _mark(tree, first, within))


def _single(state: RunState, hop: GradientHop, within: int | None) -> Stop:
    tree = state.tree
    if hop.module < 0:
        return Stop("outside any module", "", _names(hop.names))
    info = tree.modules[hop.module]
    note = "one operation for the code of several modules" if hop.hidden else _names(hop.names)
    return Stop(printable(info.path or info.name), _letters(tree, hop.module), note, _mark(tree, hop.module, within))


def _mark(tree: TreeState, module: int, within: int | None) -> str:
    inside = within is not None and within <= module < within + tree.modules[within].subtree_modules
    return "◆" if inside else "↓"


def _block(tree: TreeState, module: int) -> int:
    """Return the outermost enclosing module whose name is a number, as in ModuleList and Sequential; -1 if there is none."""
    found = -1
    while module >= 0:
        if tree.modules[module].name.isdigit():
            found = module
        module = tree.modules[module].parent
    return found


def _block_kind(tree: TreeState, module: int, own: int) -> tuple[int, str, str] | None:
    """Return the key by which blocks are folded into one line; None outside any block, or in the block `own`."""
    block = _block(tree, module)
    if block in (-1, own):
        return None
    info = tree.modules[block]
    return info.parent, info.type_name, _letters(tree, block)


def _letters(tree: TreeState, module: int) -> str:
    """Return the distinct states of a module's own parameters, or of its whole subtree if it has none of its own."""
    info = tree.modules[module]
    own = range(info.first_parameter, info.first_parameter + info.own_parameters)
    where = own or subtree(info)
    return "".join(dict.fromkeys(tree.states[where.start : where.stop]))


def _norm(state: RunState, parameter: int) -> tuple[str, str, str]:
    """Return note, mark and short note: the norm, and the share of its square in the squared norm of all gradients."""
    shown = shown_norms(state)
    norm = joint_norm((shown.norms[parameter],)) if shown.norms is not None else None
    if norm is None:
        return "", "●", ""
    short = f"norm {'≥' if shown.is_part else ''}{number_text(norm).strip()}"
    total = total_norm_at(state, shown.step) if not shown.is_part else None
    if total is None or not 0 < total < float("inf"):
        return short, "●", ""
    share = share_text(min(1.0, (norm / total) ** 2)).strip()
    return f"{short}, {share} of the squared total norm", "●", short


def _names(names: Sequence[str]) -> str:
    return printable(", ".join(re.sub(r"Backward\d*$", "", name) or name for name in names))
