"""Describe in words where backward runs and stops, and what autograd saves in a module, with the reasons. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import takewhile

from gradtui.protocol.vocabulary import ENTERED, GradMode, ParameterState, Reach
from gradtui.run.state.frontier import Frontier, frontier, modules_of
from gradtui.run.state.model_records import is_measured, model_records
from gradtui.run.state.run_state import ModelRecord, RunState
from gradtui.run.state.selectors import kept_for, measured_step, saved_bytes, subtree
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.models import record_text
from gradtui.run.text.units import capitalized, joined_numbers, short_bytes
from gradtui.system.printable import printable

_NAMED = 2
"""Maximum number of modules named; the others are counted."""
_LOOKED_AT = 256
"""Modules whose names may be joined, so that an explanation does not grow with the model."""

_EARLIER_SHOWN = 8

_ASIDE = {
    Reach.NOT_RUN.value: "forward did not call it",
    Reach.SHARED.value: "several modules call it, and what it computes counts as theirs",
    Reach.UNKNOWN.value: "how far backward runs is unknown: one operation in the graph stands for several modules",
}
"""What is said of modules of which it is not known whether backward runs in them, or whose it is."""

_UNRECORDED = {
    GradMode.NO_GRAD.value: "under no_grad",
    GradMode.INFERENCE.value: "in inference mode",
    GradMode.NOT_CHECKPOINTED.value: "in a reentrant checkpoint without an input that requires a gradient",
}
"""How a module runs in which autograd records nothing."""


def frontier_sentence(tree: TreeState, model: int | None = None) -> str | None:
    """Return the frontier in one model or in all, in words; None until it is known."""
    line = frontier(tree, model)
    if line is None or tree.gradient_flow is None:
        return None
    inside = modules_of(tree, model)
    if not any(letter in ENTERED for letter in tree.gradient_flow.reach[inside.start : inside.stop]):
        return f"Backward never enters it: {_why(tree, line.never_entered)}." if line.never_entered else None
    if not line.never_entered:
        return "Backward runs through every module that ran and has parameters."
    where = stop_text(tree, line)
    never = f"never enters {_listed(tree, line.never_entered)}"
    if where is None:
        return f"Backward {never}: {_why(tree, line.never_entered)}."
    return f"Backward stops {where}: {why_there(tree, line)}. It {never}."


def record_sentence(state: RunState, record: ModelRecord) -> str | None:
    """Return the frontier in a model of the run, even if it is gone; None where no backward of it was sampled."""
    if record.sentence is None:
        for index, model in enumerate(state.tree.models):
            if model.number == record.number and is_measured(state.tree, index):
                return frontier_sentence(state.tree, index)
    return record.sentence


def stop_text(tree: TreeState, line: Frontier, named: int = _NAMED) -> str | None:
    """Return where backward stops, as in "at X" and "at 3 places within Y"; None if it stops nowhere."""
    count = len(line.stops) + len(line.stop_parameters)
    # The paths of the first and the last of them in the tree begin as those of all.
    stops, parameters = (
        indices if count <= named else (*indices[:1], *indices[-1:]) for indices in (line.stops, line.stop_parameters)
    )
    names = [called(tree, index) for index in stops] + [tree.parameters[index].path for index in parameters]
    if not names:
        return None
    if count <= named:
        return f"at {' and '.join(names)}"
    common = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*(n.split(".") for n in names)))]
    return f"at {count:,} places{' within ' + '.'.join(common) if common else f', the first of them {names[0]}'}"


def called(tree: TreeState, index: int) -> str:
    """Return a module's path; with its type if its name is only a number, as in a `Sequential`."""
    module = tree.modules[index]
    name = module.path or module.name
    return f"{name} ({module.type_name})" if name.isdigit() else name


def why_there(tree: TreeState, line: Frontier) -> str:
    """Return why backward comes no further than this frontier, as a clause after a colon."""
    stops = len(line.stops) + len(line.stop_parameters)
    return _why_before(tree, line, modules_of(tree, None), stops) if stops else _why(tree, line.never_entered)


def why_not_entered(tree: TreeState, index: int) -> str:
    """Return why backward never enters a module that ran, as a clause after a colon."""
    return _why(tree, (index,))


def why_it_stops(tree: TreeState, index: int, line: Frontier | None = None) -> str:
    """Return why backward does not run beyond a module where it stops. `line` is as in `backward_sentence`."""
    model = next(at for at in reversed(range(len(tree.models))) if tree.models[at].root <= index)
    return _why_before(tree, line or frontier(tree) or Frontier(), modules_of(tree, model), 1)


def _why(tree: TreeState, indices: Sequence[int]) -> str:
    found = _kinds(tree, indices)
    kinds, unrecorded = found.keys(), _unrecorded(tree, found)
    it, them = ("it", "it") if len(indices) == 1 else ("they", "them")
    if unrecorded is not None and len(kinds) == 1:
        return f"{it} {'runs' if len(indices) == 1 else 'run'} {unrecorded}"
    if kinds == {_DETACHED}:
        return f"{'its output is' if it == 'it' else 'their outputs are'} detached from the loss, or not used in it"
    if kinds == {_NEW}:
        return f"{it} {'has' if len(indices) == 1 else 'have'} not been sampled since {it} became trainable"
    if _NEW in kinds:
        return "some of them have not been sampled since they became trainable"
    if kinds == {_FROZEN}:
        return f"nothing in {them} or before {them} needs a gradient"
    if kinds <= {_FROZEN, _NOT_CALLED}:
        return f"nothing that ran in {them} or before {them} needs a gradient"
    return "each is frozen, run under no_grad, detached or unused"


def _why_before(tree: TreeState, line: Frontier, inside: range, stops: int) -> str:
    """Return why backward enters nothing before `stops` places where it stops, in these modules."""
    if inside not in line.kinds:
        line.kinds[inside] = _kinds(tree, _between(line.never_entered, inside.start, inside.stop))
    kinds, them = line.kinds[inside], "it" if stops == 1 else "them"
    if (unrecorded := _unrecorded(tree, kinds)) is not None:
        return f"what comes before {them} runs {unrecorded}"
    if _DETACHED in kinds:
        return f"the output of {called(tree, kinds[_DETACHED])} is detached from the loss, or not used in it"
    if _NEW in kinds:
        return f"{called(tree, kinds[_NEW])} has not been sampled since it became trainable"
    return f"nothing before {them} needs a gradient"


_NO_GRAD, _DETACHED, _NEW, _FROZEN = "no_grad", "detached", "newly trainable", "frozen"
_NOT_CALLED = "trainable parts not called"
_NOT_CHECKPOINTED = "not checkpointed"

_RECORDS, _CHECKPOINT = GradMode.GRAD.value, GradMode.NOT_CHECKPOINTED.value
_NO_GRAD_MODES = (GradMode.NO_GRAD.value, GradMode.INFERENCE.value)
_UNKNOWN = ParameterState.UNKNOWN.value


def _kinds(tree: TreeState, indices: Sequence[int]) -> dict[str, int]:
    """Return the kinds of modules, each with the first module of that kind. `indices` ascend and none contains another.

    A frozen backbone can be tens of thousands of modules in a row: the search goes on behind it, at the next parameter that
    trains.
    """
    modules, flags = tree.modules, tree.trainable
    modes = tree.gradient_flow.grad_modes if tree.gradient_flow is not None else ""
    if any(mode in modes for mode in _NO_GRAD_MODES):
        return {_kind(tree, index): index for index in reversed(indices)}
    kinds: dict[str, int] = {}
    at = 0
    while at < len(indices):
        index = indices[at]
        at += 1
        where = subtree(modules[index])
        trains = flags.find("1", where.start)
        if 0 <= trains < where.stop:
            kinds.setdefault(_kind(tree, index), index)
            continue
        kinds.setdefault(_FROZEN, index)
        if trains < 0:
            break
        if at < len(indices) and subtree(modules[indices[at]]).stop <= trains:
            at = bisect_right(indices, trains, at, key=lambda each: subtree(modules[each]).stop)
    return kinds


def _kind(tree: TreeState, index: int) -> str:
    # A model can have tens of thousands of such modules, so strings are searched and not copied.
    module = tree.modules[index]
    end = index + module.subtree_modules
    modes = tree.gradient_flow.grad_modes if tree.gradient_flow is not None else ""
    records = modes.find(_RECORDS, index, end) >= 0
    if not records and any(modes.find(mode, index, end) >= 0 for mode in _NO_GRAD_MODES):
        return _NO_GRAD
    where = subtree(module)
    if tree.trainable.find("1", where.start, where.stop) < 0:
        return _FROZEN
    if not records and modes.find(_CHECKPOINT, index, end) >= 0:
        return _NOT_CHECKPOINTED
    trained = [each for each in where if tree.trainable[each] == "1"]
    letters = tree.gradient_flow.reach if tree.gradient_flow is not None else ""
    if letters and all(letters[tree.parameters[each].module] == Reach.NOT_RUN.value for each in trained):
        return _NOT_CALLED
    return _NEW if all(tree.states[each] == _UNKNOWN for each in trained) else _DETACHED


def _unrecorded(tree: TreeState, kinds: Mapping[str, int]) -> str | None:
    """Return how the modules run in which autograd records nothing, if some of these do."""
    if _NO_GRAD not in kinds:
        return f"{_UNRECORDED[_CHECKPOINT]}; use_reentrant=False records it" if _NOT_CHECKPOINTED in kinds else None
    mode = tree.gradient_flow.grad_modes[kinds[_NO_GRAD]] if tree.gradient_flow is not None else ""
    return _UNRECORDED[mode if mode in _NO_GRAD_MODES else GradMode.NO_GRAD.value]


def _listed(tree: TreeState, indices: Sequence[int]) -> str:
    return _named([called(tree, index) for index in indices[:_LOOKED_AT]], len(indices))


def _named(names: Sequence[str], count: int) -> str:
    """Name two of `count` modules or of their stretches, and count the others. `names` are those of the first modules."""
    joined = joined_numbers(names)[:_NAMED]
    words, more = [name for name, _ in joined], count - sum(size for _, size in joined)
    return f"{', '.join(words)} and {more:,} more" if more else " and ".join(words)


def backward_words(state: RunState, index: int) -> str | None:
    """Say whether and why backward runs through a module, stops in it or never enters it; None while that is unknown."""
    clause = _backward_clause(state.tree, index)
    return f"{capitalized(clause)} (step {measured_step(state.tree, index):,})." if clause is not None else None


def backward_sentence(tree: TreeState, index: int, line: Frontier | None = None) -> str:
    """Return the same as a sentence of its own. `line` is the frontier in all models, if the caller has it."""
    clause = _backward_clause(tree, index, line)
    if clause is None or tree.gradient_flow is None:
        return "How far backward runs is not known before a step is sampled."
    letter, step = tree.gradient_flow.reach[index], measured_step(tree, index)
    if letter == Reach.NOT_RUN.value and step:
        return f"{capitalized(clause)} in step {step:,}."
    return f"{capitalized(clause)}." if letter in _ASIDE else f"Backward {clause}."


def _backward_clause(tree: TreeState, index: int, line: Frontier | None = None) -> str | None:
    flow = tree.gradient_flow
    if flow is None or not flow.reach:
        return None
    letter = flow.reach[index]
    if letter == Reach.NOT_ENTERED.value:
        return f"never enters it: {why_not_entered(tree, index)}"
    if letter in _ASIDE:
        return _ASIDE[letter]
    line = line or frontier(tree)
    end = index + tree.modules[index].subtree_modules
    if line is not None and index in line.stops:
        return f"stops here, at parameters of its own: {why_it_stops(tree, index, line)}"
    never = _between(line.never_entered, index + 1, end) if line is not None else ()
    paths = [printable(tree.modules[each].path) for each in never[:_LOOKED_AT]]
    inside = f", but never into {_named(paths, len(never))}" if never else ""
    if letter == Reach.THROUGH.value:
        return f"runs through it to the modules before it{inside}"
    return f"runs in it and ends at parameters of its own{inside}"


def _between(indices: tuple[int, ...], first: int, end: int) -> tuple[int, ...]:
    """Return those of ascending indexes that are in `range(first, end)`."""
    return indices[bisect_left(indices, first) : bisect_left(indices, end)]


def mode_words(state: RunState, index: int) -> str | None:
    """Say under which grad mode a module ran, and whether in train or eval mode; None while that is unknown."""
    flow = state.tree.gradient_flow
    if flow is None or (mode := flow.grad_modes[index]) not in (_RECORDS, *_UNRECORDED):
        return None
    how = _UNRECORDED.get(mode)
    words = "With autograd recording"
    if how is not None:
        words = f"{capitalized(how)}: autograd records nothing, whatever requires_grad says"
    return f"{words}; {'train' if flow.training[index] in '1h' else 'eval'} mode."


def saved_words(state: RunState, index: int) -> str:
    """Say what autograd saves for backward in the module's own operations, and in its subtree if that is more; and why."""
    tree = state.tree
    saved, whole = tree.saved, saved_bytes(tree, index)
    if whole is None or saved is None:
        return "What autograd saves for backward has not been measured yet."
    step = measured_step(tree, index)
    if whole == 0:
        return f"Nothing for backward{_why_nothing(tree, index)} (step {step:,})."
    share = f", {whole / saved.total:.0%} of all" if saved.total > 0 and step == saved.step else ""
    own = saved.by_module[index]
    inside = f"; {short_bytes(own)} by its own operations" if own != whole else ""
    return f"{short_bytes(whole)} for backward{share}{inside} (step {step:,}){_why_saved(tree, index)}."


def _why_saved(tree: TreeState, index: int) -> str:
    reasons = []
    if any(
        tree.trainable[i] == "1" and tree.states[i] != ParameterState.UNREACHED.value
        for i in subtree(tree.modules[index])
    ):
        reasons.append("for the gradients of its own parameters")
    parameter = kept_for(tree, index)
    if parameter is not None:
        path = printable(tree.parameters[parameter].path)
        reasons.append(f"for the gradient of {path}, which passes through here")
    return f", {', and '.join(reasons)}" if reasons else ""


def _why_nothing(tree: TreeState, index: int) -> str:
    letter = tree.gradient_flow.reach[index] if tree.gradient_flow is not None and tree.gradient_flow.reach else ""
    if letter == Reach.NOT_ENTERED.value:
        return f": {why_not_entered(tree, index)}"
    if letter in (Reach.NOT_RUN.value, Reach.SHARED.value):
        return f": {_ASIDE[letter]}"
    if letter and letter in ENTERED:
        return ": the gradient passes through, and its operations save nothing for that"
    return ""


def model_lines(state: RunState, index: int) -> list[tuple[str, str]]:
    """Return (label, words) for the root of a model: what trains and how it runs, and the same for models that are gone."""
    listed = next((i for i, model in enumerate(state.tree.models) if model.root == index), None)
    if listed is None:
        return []
    records = model_records(state)
    number = state.tree.models[listed].number
    own = next((record for record in records if record.current and record.number == number), None)
    lines = [("model", f"{record_text(own)}.")] if own is not None and own.regimes else []
    gone = [record for record in records if not record.current]
    for record in reversed(gone[-_EARLIER_SHOWN:]):
        label = "" if len(lines) > 1 else "earlier"
        lines.append((label, f"{printable(record.name)} (step {record.step or 0:,}): {record_text(record)}."))
    if len(gone) > _EARLIER_SHOWN:
        lines.append(("", f"and {len(gone) - _EARLIER_SHOWN} before these."))
    return lines
