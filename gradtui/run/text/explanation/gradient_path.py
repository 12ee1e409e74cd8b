"""Describes the path of a gradient from the loss to a row: a sentence, and a stop for each module or stack of blocks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gradtui.protocol.vocabulary import MAX_PATHS
from gradtui.run.explanation.gradient_path import FollowedGradient, Stop
from gradtui.run.text.explanation.states import cause_clause
from gradtui.run.text.units import number_text, plural, share_text
from gradtui.system.printable import printable


class StopWords(NamedTuple):
    """A stop on the way of a gradient, in words."""

    mark: str
    letters: str
    """The states of its parameters."""
    name: str
    note: str = ""
    short_note: str = ""
    """Replaces the note where that does not fit."""


def path_sentence(found: FollowedGradient) -> str:
    """Say which way the gradient takes from the loss to the row, or why it does not come."""
    path = found.path
    if found.step is None:
        held = " Training is paused: esc, then n runs one step." if found.is_paused else ""
        return f"The gradient is followed from the loss to it in the next step.{held}"
    at = f"(step {found.step:,})."
    if not path.found:
        return f"{_why_not(found)} {at}"
    frozen = f", {found.frozen:,} of them frozen" if found.frozen else ""
    through = (
        f"From the loss through {plural(found.operations, 'operation')} of {plural(found.modules, 'module')}{frozen}"
    )
    upstream = printable(found.upstream)
    if found.ends_here:
        uses = f"; {path.use_count:,} operations take it, and its gradient is the sum" if path.use_count > 1 else ""
        return f"{through}{_ways(path.path_count)}{uses} {at}"
    if upstream and found.trains:
        return f"{through}{_ways(path.path_count)}; it reaches parameters in it and passes on to {upstream} {at}"
    if upstream:
        return f"{through}: here it only passes, on its way to {upstream} {at}"
    if found.trains:
        return f"{through}{_ways(path.path_count)}; it ends at parameters in it {at}"
    return f"{through}; it ends in its module, since nothing before that needs a gradient {at}"


def _ways(count: int) -> str:
    if count <= 1:
        return ", the only way"
    return f", the shortest of {f'more than {MAX_PATHS:,}' if count >= MAX_PATHS else f'{count:,}'} ways"


def _why_not(found: FollowedGradient) -> str:
    path = found.path
    if path.hidden:
        return (
            "Unknown: one operation on the path stands for the code of several modules, as with torch.compile and reentrant "
            "checkpoints"
        )
    if not path.operations:
        return "No graph was searched: this step had no backward, or its graph is too deep to search safely"
    if not path.whole:
        return f"Not among the {path.operations:,} operations nearest the loss, and the graph has more than gradtui searches"
    if found.has_gradient:
        return (
            "No operation of this backward leads to it, though it has a gradient: from another backward, or from what shards "
            "parameters"
        )
    reason = cause_clause(found.never)
    return f"The gradient never comes here{': ' + printable(reason) if reason is not None else ''}"


def stop_words(found: FollowedGradient) -> Iterator[StopWords]:
    """Yield the loss and the stops, in the order of the gradient; nothing where only the loss is known."""
    if not found.stops:
        return
    yield StopWords("●", "", "loss", _names(found.loss))
    for index, stop in enumerate(found.stops):
        if index == len(found.stops) - 1 and not found.path.found:
            yield StopWords("×", stop.letters, printable(stop.name), "never comes here")
        else:
            yield _words(stop)


def _words(stop: Stop) -> StopWords:
    name, mark = printable(stop.name) or "outside any module", "◆" if stop.is_target else "↓"
    if stop.is_parameter:
        return StopWords(mark, stop.letters, name, "none is computed for it") if stop.is_target else _parameter(stop)
    if stop.blocks:
        note = f"{plural(stop.blocks, 'block')}, {plural(stop.count, 'operation')}"
        return StopWords(mark, stop.letters, f"{name} … {printable(stop.last)}", note)
    note = "one operation for the code of several modules" if stop.is_hidden else _names(stop.operations)
    return StopWords(mark, stop.letters, name, note)


def _parameter(stop: Stop) -> StopWords:
    name = printable(stop.name)
    if stop.norm is None:
        return StopWords("●", stop.letters, name)
    short = f"norm {'≥' if stop.norm_is_part else ''}{number_text(stop.norm).strip()}"
    if stop.share is None:
        return StopWords("●", stop.letters, name, short)
    return StopWords(
        "●", stop.letters, name, f"{short}, {share_text(stop.share).strip()} of the squared total norm", short
    )


def _names(names: Sequence[str]) -> str:
    return printable(", ".join(re.sub(r"Backward\d*$", "", name) or name for name in names))
