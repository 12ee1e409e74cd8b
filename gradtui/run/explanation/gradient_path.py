"""The path of a gradient from the loss to a row, as facts: how it ends, and its stops on the way. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from gradtui.protocol.commands import TraceGradient
from gradtui.protocol.events import GradientPath, GradientPathFound
from gradtui.protocol.vocabulary import GradientHop, ParameterState
from gradtui.run.explanation.causes import NO_CAUSE, Cause, never_of
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import subtree, total_norm_at
from gradtui.run.state.series import joint_norm
from gradtui.run.state.shown_norms import shown_norms
from gradtui.run.state.tree_state import TreeState

_NOTHING = GradientPath()
_FOLDED = 3
"""This many consecutive blocks are folded into one stop."""
_PASSED_MODULES = frozenset({ParameterState.FLOW_THROUGH.value})
_HAS_GRADIENT = (ParameterState.TRAINED, ParameterState.ZERO, ParameterState.NOT_FINITE, ParameterState.ORPHAN)


@dataclass(frozen=True)
class Stop:
    """A module, a stack of blocks or a parameter on the path."""

    name: str
    """A path; empty outside of all modules."""
    last: str = ""
    """Of a stack: the name of its last block."""
    letters: str = ""
    """The distinct states of the parameters."""
    operations: tuple[str, ...] = ()
    """Names of autograd's operations."""
    blocks: int = 0
    """Of a stack: how many blocks it has, with `count` operations."""
    count: int = 0
    is_hidden: bool = False
    """One operation stands for the code of several modules."""
    is_target: bool = False
    """It is what was asked for, or in it, and the gradient passes on."""
    is_parameter: bool = False
    norm: float | None = None
    """Of a parameter: the norm of its gradient."""
    share: float | None = None
    """Of a parameter: the share of its square in the squared norm of all gradients."""
    norm_is_part: bool = False
    """`norm` is of the part that this rank holds."""


@dataclass(frozen=True)
class FollowedGradient:
    """What is known of the path to a row that was asked for."""

    step: int | None = None
    """None until a step is searched."""
    is_paused: bool = False
    """Training is paused, so that no step comes."""
    path: GradientPath = _NOTHING
    modules: int = 0
    """The number of modules on the path."""
    frozen: int = 0
    """How many of them have frozen parameters only, through which the gradient passes."""
    operations: int = 0
    ends_here: bool = False
    """It is the parameter at which the path ends."""
    trains: bool = False
    """Parameters in the module get a gradient."""
    has_gradient: bool = False
    """The parameter has a gradient, wherever that comes from."""
    upstream: str = ""
    """The parameter to which the gradient passes on."""
    never: Cause = NO_CAUSE
    """Why the gradient does not come, where the path was not found."""
    loss: tuple[str, ...] = ()
    """The operations outside of modules with which the path begins."""
    stops: tuple[Stop, ...] = ()
    """Behind the loss. The last one is a parameter, or the row itself where the path was not found."""


def followed_gradient(state: RunState, path: str) -> FollowedGradient | None:
    """Return the path of the gradient to the module or parameter with this path; None if nobody asked for it."""
    tree = state.tree
    found = tree.gradient_paths.get(path)
    if found is None:
        asked = any(isinstance(command, TraceGradient) and command.path == path for command in state.pending.values())
        return FollowedGradient(is_paused=state.paused) if asked or path in tree.followed else None
    way, index = found.gradient, found.parameter
    hops = [*way.hops, *way.onward[1:]]
    passed = {hop.module for hop in hops if hop.module >= 0}
    within = subtree(tree.modules[found.module]) if index < 0 else range(0)
    unreached = ParameterState.UNREACHED.value
    inner = list(way.hops)
    first = inner.pop(0) if inner and inner[0].module < 0 else None
    return FollowedGradient(
        found.step,
        path=way,
        modules=len(passed),
        frozen=sum(set(_letters(tree, module)) == _PASSED_MODULES for module in passed),
        operations=sum(hop.operations for hop in hops),
        ends_here=index >= 0 and index == way.upstream,
        trains=any(tree.trainable[each] == "1" and tree.states[each] != unreached for each in within),
        has_gradient=index >= 0 and tree.trainable[index] == "1" and tree.states[index] in _HAS_GRADIENT,
        upstream=tree.parameters[way.upstream].path if way.upstream >= 0 else "",
        never=NO_CAUSE if way.found else never_of(tree, found.module),
        loss=first.names if first is not None else (),
        stops=tuple(_stops(state, inner, found)),
    )


def _stops(state: RunState, hops: list[GradientHop], found: GradientPathFound) -> Iterator[Stop]:
    tree, way, index = state.tree, found.gradient, found.parameter
    yield from _folded(tree, hops, found)
    if not way.found:
        module = tree.modules[found.module]
        yield _parameter(state, index) if index >= 0 else Stop(module.path or module.name)
        return
    if index >= 0:
        yield _parameter(state, index, is_target=index != way.upstream)
        if index == way.upstream:
            return
    yield from _folded(tree, way.onward[1:], found)
    if way.upstream >= 0:
        yield _parameter(state, way.upstream)


def _folded(tree: TreeState, hops: Iterable[GradientHop], found: GradientPathFound) -> Iterator[Stop]:
    """Yield a stop per hop. A stack of similar blocks is one stop, except for the block that contains the target."""
    own = _block(tree, found.module)
    target = range(0)
    if found.parameter < 0 and found.gradient.found:
        target = range(found.module, found.module + tree.modules[found.module].subtree_modules)
    for key, group in groupby(hops, lambda hop: _block_kind(tree, hop.module, own)):
        listed = list(group)
        blocks = list(dict.fromkeys(_block(tree, hop.module) for hop in listed))
        if key is None or len(blocks) < _FOLDED:
            yield from (_single(tree, hop, target) for hop in listed)
            continue
        first, count = blocks[0], sum(hop.operations for hop in listed)
        last, letters = tree.modules[blocks[-1]].name, _letters(tree, first)
        yield Stop(tree.modules[first].path, last, letters, blocks=len(blocks), count=count, is_target=first in target)


def _single(tree: TreeState, hop: GradientHop, target: range) -> Stop:
    if hop.module < 0:
        return Stop("", operations=hop.names)
    info, letters = tree.modules[hop.module], _letters(tree, hop.module)
    is_target = hop.module in target
    return Stop(info.path or info.name, "", letters, hop.names, is_hidden=hop.hidden, is_target=is_target)


def _block(tree: TreeState, module: int) -> int:
    """Return the outermost enclosing module whose name is a number, as in ModuleList and Sequential; -1 if there is none."""
    found = -1
    while module >= 0:
        if tree.modules[module].name.isdigit():
            found = module
        module = tree.modules[module].parent
    return found


def _block_kind(tree: TreeState, module: int, own: int) -> tuple[int, str, str] | None:
    """Return the key by which blocks are folded into one stop; None outside any block, or in the block `own`."""
    block = _block(tree, module)
    if block in (-1, own):
        return None
    info = tree.modules[block]
    return info.parent, info.type_name, _letters(tree, block)


def _letters(tree: TreeState, module: int) -> str:
    """Return the distinct states of a module's own parameters, or of its whole subtree if it has none of its own."""
    info = tree.modules[module]
    where = range(info.first_parameter, info.first_parameter + info.own_parameters) or subtree(info)
    return "".join(dict.fromkeys(tree.states[where.start : where.stop]))


def _parameter(state: RunState, index: int, *, is_target: bool = False) -> Stop:
    shown, info = shown_norms(state), state.tree.parameters[index]
    norm = joint_norm((shown.norms[index],)) if shown.norms is not None else None
    total = total_norm_at(state, shown.step) if not shown.is_part else None
    is_known = norm is not None and total is not None and 0 < total < float("inf")
    share = min(1.0, (norm / total) ** 2) if is_known and norm is not None and total is not None else None
    letter = state.tree.states[index]
    return Stop(
        info.path,
        letters=letter,
        is_target=is_target,
        is_parameter=True,
        norm=norm,
        share=share,
        norm_is_part=shown.is_part,
    )
