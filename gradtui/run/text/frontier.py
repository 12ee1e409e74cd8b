"""Describe in words where backward stops in the models of a run, and which modules it never enters. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from gradtui.protocol.vocabulary import ENTERED
from gradtui.run.explanation.row import MAX_NAMED
from gradtui.run.state.backward.barriers import barriers_of, called
from gradtui.run.state.backward.frontier import Frontier, barriers_before, frontier, modules_of
from gradtui.run.state.model_records import is_measured
from gradtui.run.state.run_state import ModelRecord, RunState
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.explanation.backward import before_clause, named, not_entered_clause

_MAX_STOPS = 2
"""Maximum number of places where backward stops that are named."""


def frontier_sentence(tree: TreeState, model: int | None = None) -> str | None:
    """Return the frontier in one model or in all, in words; None until it is known."""
    line = frontier(tree, model)
    if line is None or tree.gradient_flow is None:
        return None
    inside = modules_of(tree, model)
    if not any(letter in ENTERED for letter in tree.gradient_flow.reach[inside.start : inside.stop]):
        return f"Backward never enters it: {_why(tree, line)}." if line.never_entered else None
    if not line.never_entered:
        return "Backward runs through every module that ran and has parameters."
    where = stop_text(tree, line)
    never = f"never enters {_listed(tree, line.never_entered)}"
    if where is None:
        return f"Backward {never}: {_why(tree, line)}."
    return f"Backward stops {where}: {why_there(tree, line)}. It {never}."


def record_sentence(state: RunState, record: ModelRecord) -> str | None:
    """Return the frontier in a model of the run, even if it is gone; None where no backward of it was sampled."""
    if record.sentence is None:
        for index, model in enumerate(state.tree.models):
            if model.number == record.number and is_measured(state.tree, index):
                return frontier_sentence(state.tree, index)
    return record.sentence


def stop_text(tree: TreeState, line: Frontier, most: int = _MAX_STOPS) -> str | None:
    """Return where backward stops, as in "at X" and "at 3 places within Y"; None if it stops nowhere."""
    count = len(line.stops) + len(line.stop_parameters)
    # The paths of the first and the last of them in the tree begin as those of all.
    stops, parameters = (
        indices if count <= most else (*indices[:1], *indices[-1:]) for indices in (line.stops, line.stop_parameters)
    )
    names = [called(tree, index) for index in stops] + [tree.parameters[index].path for index in parameters]
    if not names:
        return None
    if count <= most:
        return f"at {' and '.join(names)}"
    common = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*(n.split(".") for n in names)))]
    return f"at {count:,} places{' within ' + '.'.join(common) if common else f', the first of them {names[0]}'}"


def why_there(tree: TreeState, line: Frontier) -> str:
    """Return why backward comes no further than this frontier, as a clause after a colon."""
    stops = len(line.stops) + len(line.stop_parameters)
    return before_clause(barriers_before(tree, line, modules_of(tree, None)), stops) if stops else _why(tree, line)


def _why(tree: TreeState, line: Frontier) -> str:
    return not_entered_clause(barriers_of(tree, line.never_entered), len(line.never_entered))


def _listed(tree: TreeState, indices: Sequence[int]) -> str:
    return named([called(tree, index) for index in indices[:MAX_NAMED]], len(indices))
