"""Describes the way of a gradient from the loss to a row: a sentence, and a stop for each module or stack of blocks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from gradtui.protocol.vocabulary import MAX_PATHS, GradientHop, ParameterState
from gradtui.run.explanation.page_facts import AwaitedWay, GradientWay, PassedModule, PassedParameter
from gradtui.run.text.explanation.states import cause_clause
from gradtui.run.text.units import number_text, plural, share_text
from gradtui.system.printable import printable

_FOLDED = 3
"""This many consecutive blocks are folded into one line."""
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


def path_sentence(way: GradientWay | AwaitedWay | None) -> str | None:
    """Describe the gradient path to a row, or say why no gradient reaches it; None if no command has requested it."""
    if isinstance(way, GradientWay):
        return _sentence(way)
    held = " Training is paused: esc, then n runs one step." if way is AwaitedWay.PAUSED else ""
    return f"The gradient is followed from the loss to it in the next step.{held}" if way is not None else None


def path_stops(way: GradientWay | AwaitedWay | None) -> list[Stop]:
    """Return the stops of this way, the loss first; empty where it is unknown, or where no more than the loss is known."""
    stops = list(_stops(way)) if isinstance(way, GradientWay) else []
    return stops if len(stops) > 1 else []


def _sentence(way: GradientWay) -> str:
    chain, path, at = way.found, way.found.gradient, f"(step {way.found.step:,})."
    if not path.found:
        return f"{_why_not(way)} {at}"
    hops = [*path.hops, *path.onward[1:]]
    modules = {hop.module for hop in hops if hop.module >= 0}
    frozen = sum(way.modules[module].states == ParameterState.FLOW_THROUGH.value for module in modules)
    passed = f", {frozen:,} of them frozen" if frozen else ""
    operations = plural(sum(hop.operations for hop in hops), "operation")
    through = f"From the loss through {operations} of {plural(len(modules), 'module')}{passed}"
    most = f"more than {MAX_PATHS:,}" if path.path_count >= MAX_PATHS else f"{path.path_count:,}"
    ways = f"{through}, the shortest of {most} ways" if path.path_count > 1 else f"{through}, the only way"
    if chain.parameter >= 0 and chain.parameter == path.upstream:
        uses = f"; {path.use_count:,} operations take it, and its gradient is the sum" if path.use_count > 1 else ""
        return f"{ways}{uses} {at}"
    if path.upstream >= 0:
        upstream = printable(way.parameters[path.upstream].path)
        if way.trains:
            return f"{ways}; it reaches parameters in it and passes on to {upstream} {at}"
        return f"{through}: here it only passes, on its way to {upstream} {at}"
    if way.trains:
        return f"{ways}; it ends at parameters in it {at}"
    return f"{through}; it ends in its module, since nothing before that needs a gradient {at}"


def _why_not(way: GradientWay) -> str:
    path, target = way.found.gradient, way.parameters.get(way.found.parameter)
    if path.hidden:
        return (
            "Unknown: one operation on the path stands for the code of several modules, as with torch.compile and reentrant "
            "checkpoints"
        )
    if not path.operations:
        return "No graph was searched: this step had no backward, or its graph is too deep to search safely"
    if not path.whole:
        return f"Not among the {path.operations:,} operations nearest the loss, and the graph has more than gradtui searches"
    if target is not None and target.state in _HAS_GRADIENT and target.trainable:
        return (
            "No operation of this backward leads to it, though it has a gradient: from another backward, or from what shards "
            "parameters"
        )
    reason = cause_clause(way.cause)
    return f"The gradient never comes here{': ' + printable(reason) if reason is not None else ''}"


def _stops(way: GradientWay) -> Iterator[Stop]:
    chain, hops = way.found, list(way.found.gradient.hops)
    target, upstream = way.parameters.get(chain.parameter), way.parameters.get(chain.gradient.upstream)
    first = hops.pop(0) if hops and hops[0].module < 0 else None
    yield Stop("loss", note=_names(first.names) if first is not None else "", mark="●")
    yield from _folded(way, hops)
    if not chain.gradient.found:
        name, letter = (target.path, target.state.value) if target is not None else (way.modules[chain.module].path, "")
        yield Stop(printable(name), letter, "never comes here", "×")
        return
    if upstream is None or target is not upstream:
        if target is not None:
            yield Stop(printable(target.path), target.state.value, "none is computed for it", "◆")
        yield from _folded(way, chain.gradient.onward[1:])
    if upstream is not None:
        yield Stop(printable(upstream.path), upstream.state.value, *_norm(upstream))


def _folded(way: GradientWay, hops: Iterable[GradientHop]) -> Iterator[Stop]:
    """Yield a line per hop. A stack of similar blocks is one line, except for the block that contains the target."""
    modules = way.modules
    for key, group in groupby(hops, lambda hop: _block_kind(way, hop.module)):
        listed = list(group)
        blocks = list(dict.fromkeys(modules[hop.module].block for hop in listed if hop.module >= 0))
        if key is None or len(blocks) < _FOLDED:
            yield from (_single(hop, modules.get(hop.module)) for hop in listed)
            continue
        first, last = modules[blocks[0]], modules[blocks[-1]]
        note = f"{plural(len(blocks), 'block')}, {plural(sum(hop.operations for hop in listed), 'operation')}"
        yield Stop(f"{printable(first.path)} … {printable(last.name)}", first.states, note, _mark(first))


def _single(hop: GradientHop, module: PassedModule | None) -> Stop:
    if module is None:
        return Stop("outside any module", "", _names(hop.names))
    note = "one operation for the code of several modules" if hop.hidden else _names(hop.names)
    return Stop(printable(module.path), module.states, note, _mark(module))


def _mark(module: PassedModule) -> str:
    return "◆" if module.is_inside else "↓"


def _block_kind(way: GradientWay, module: int) -> tuple[int, str, str] | None:
    """Return the key by which blocks are folded into one line; None outside any block, or in the block of the target."""
    block = way.modules[module].block if module >= 0 else -1
    if block in (-1, way.modules[way.found.module].block):
        return None
    info = way.modules[block]
    return info.parent, info.type_name, info.states


def _norm(parameter: PassedParameter) -> tuple[str, str, str]:
    """Return note, mark and short note: the norm, and the share of its square in the squared norm of all gradients."""
    norm = parameter.norm
    if norm is None:
        return "", "●", ""
    short = f"norm {'≥' if norm.is_part else ''}{number_text(norm.value).strip()}"
    if norm.total is None or not 0 < norm.total < float("inf"):
        return short, "●", ""
    share = share_text(min(1.0, (norm.value / norm.total) ** 2)).strip()
    return f"{short}, {share} of the squared total norm", "●", short


def _names(names: Sequence[str]) -> str:
    return printable(", ".join(re.sub(r"Backward\d*$", "", name) or name for name in names))
