"""Describe the freeze frontier in words: where backward stops, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from gradtui.protocol.vocabulary import ENTERED, GradMode, ParameterState
from gradtui.state.frontier import Frontier, frontier, modules_of
from gradtui.state.model_records import is_measured
from gradtui.state.run_state import ModelRecord, RunState, TreeState
from gradtui.state.selectors import subtree

_NAMED = 2
"""Maximum number of modules named; the others are counted."""


def frontier_sentence(tree: TreeState, model: int | None = None) -> str | None:
    """Return the frontier in one model or in all, in words; None until it is known."""
    line = frontier(tree, model)
    if line is None or tree.reach is None:
        return None
    inside = modules_of(tree, model)
    if not any(letter in ENTERED for letter in tree.reach.reach[inside.start : inside.stop]):
        return f"Backward never enters it: {_why(tree, line.never_entered)}." if line.never_entered else None
    if not line.never_entered:
        return "Backward runs through every module that ran and has parameters."
    where = stop_text(tree, line)
    never = f"never enters {_listed(tree, line.never_entered)}"
    if where is None:
        return f"Backward {never}: {_why(tree, line.never_entered)}."
    return f"Backward stops {where}: {_why_before(tree, line)}. It {never}."


def record_sentence(state: RunState, record: ModelRecord) -> str | None:
    """Return the frontier in a model of the run, even if it is gone; None where no backward of it was sampled."""
    if record.sentence is None:
        for index, model in enumerate(state.tree.models):
            if model.number == record.number and is_measured(state.tree, index):
                return frontier_sentence(state.tree, index)
    return record.sentence


def stop_text(tree: TreeState, line: Frontier, named: int = _NAMED) -> str | None:
    """Return where backward stops, as in "at X" and "at 3 places within Y"; None if it stops nowhere."""
    names = [called(tree, index) for index in line.stops]
    names += [tree.parameters[index].path for index in line.stop_parameters]
    if not names:
        return None
    if len(names) <= named:
        return f"at {' and '.join(names)}"
    common = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*(n.split(".") for n in names)))]
    return f"at {len(names):,} places{' within ' + '.'.join(common) if common else f', the first of them {names[0]}'}"


def called(tree: TreeState, index: int) -> str:
    """Return a module's path; with its type if its name is only a number, as in a `Sequential`."""
    module = tree.modules[index]
    name = module.path or module.name
    return f"{name} ({module.type_name})" if name.isdigit() else name


def why_there(tree: TreeState, line: Frontier) -> str:
    """Return why backward comes no further than this frontier, as a clause after a colon."""
    stops = line.stops or line.stop_parameters
    return _why_before(tree, line) if stops else _why(tree, line.never_entered)


def why_not_entered(tree: TreeState, index: int) -> str:
    """Return why backward never enters a module that ran, as a clause after a colon."""
    return _why(tree, (index,))


def why_it_stops(tree: TreeState, index: int) -> str:
    """Return why backward does not run beyond a module where it stops."""
    whole = frontier(tree) or Frontier()
    model = next(m for m in reversed(tree.models) if m.root <= index)
    end = model.root + tree.modules[model.root].subtree_modules
    return _why_before(tree, Frontier((index,), (), tuple(i for i in whole.never_entered if model.root <= i < end)))


def _why(tree: TreeState, indices: Sequence[int]) -> str:
    kinds = {_kind(tree, index) for index in indices}
    it = "it" if len(indices) == 1 else "they"
    if kinds == {_NO_GRAD}:
        return f"{it} {'runs' if len(indices) == 1 else 'run'} {_mode_words(tree, indices[0])}"
    if kinds == {_NOT_CHECKPOINTED}:
        return f"{it} {'runs' if len(indices) == 1 else 'run'} {_WITHOUT_INPUT}"
    if kinds == {_DETACHED}:
        return f"what {it} computed is detached from the loss, or not used in it"
    if kinds == {_NEW}:
        return f"{it} {'has' if len(indices) == 1 else 'have'} not been sampled since {it} became trainable"
    if _NEW in kinds:
        return "some of them have not been sampled since they became trainable"
    if kinds == {_FROZEN}:
        return f"nothing in {'it' if it == 'it' else 'them'}, or before, needs a gradient"
    return "each is frozen, run under no_grad, detached or unused"


def _why_before(tree: TreeState, line: Frontier) -> str:
    kinds = {_kind(tree, index): index for index in reversed(line.never_entered)}
    one = len(line.stops) + len(line.stop_parameters) == 1
    if _NO_GRAD in kinds:
        return f"what comes before {'it' if one else 'them'} runs {_mode_words(tree, kinds[_NO_GRAD])}"
    if _NOT_CHECKPOINTED in kinds:
        return f"what comes before {'it' if one else 'them'} runs {_WITHOUT_INPUT}"
    if _DETACHED in kinds:
        return f"what {called(tree, kinds[_DETACHED])} computed is detached from the loss, or not used in it"
    if _NEW in kinds:
        return f"{called(tree, kinds[_NEW])} has not been sampled since it became trainable"
    return f"nothing before {'it' if one else 'them'} needs a gradient"


_NO_GRAD, _DETACHED, _NEW, _FROZEN = "no_grad", "detached", "newly trainable", "frozen"
_NOT_CHECKPOINTED = "not checkpointed"
_WITHOUT_INPUT = "in a reentrant checkpoint, no input of which requires a gradient; use_reentrant=False records it"


def _kind(tree: TreeState, index: int) -> str:
    modes = set(tree.reach.grad_modes[index : index + tree.modules[index].subtree_modules]) if tree.reach else set()
    if GradMode.GRAD.value not in modes and modes & {GradMode.NO_GRAD.value, GradMode.INFERENCE.value}:
        return _NO_GRAD
    trains = {tree.states[each] for each in subtree(tree.modules[index]) if tree.trainable[each] == "1"}
    if trains and GradMode.GRAD.value not in modes and GradMode.NOT_CHECKPOINTED.value in modes:
        return _NOT_CHECKPOINTED
    if trains == {ParameterState.UNKNOWN.value}:
        return _NEW
    return _DETACHED if trains else _FROZEN


def _mode_words(tree: TreeState, index: int) -> str:
    inference = tree.reach is not None and tree.reach.grad_modes[index] == GradMode.INFERENCE.value
    return "in inference mode" if inference else "under no_grad"


def _listed(tree: TreeState, indices: Sequence[int]) -> str:
    names = [called(tree, index) for index in indices]
    if len(names) <= _NAMED:
        return " and ".join(names)
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED:,} more"
