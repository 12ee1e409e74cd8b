"""Describe in words where backward runs and stops, and what autograd saves in a module, with the reasons. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from gradtui.protocol.vocabulary import ENTERED, GradMode, Reach
from gradtui.run.explanation.facts import Backward, Kept
from gradtui.run.explanation.row import MAX_NAMED
from gradtui.run.state.backward.barriers import Barrier, Barriers, barriers_of, called
from gradtui.run.state.backward.frontier import Frontier, barriers_before, frontier, modules_of
from gradtui.run.state.model_records import is_measured, model_records
from gradtui.run.state.run_state import ModelRecord, RunState
from gradtui.run.state.selectors import gets_gradient, subtree
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.models import record_text
from gradtui.run.text.units import capitalized, joined_numbers, short_bytes
from gradtui.system.printable import printable

_NAMED = 2
"""Maximum number of modules named; the others are counted."""
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


def why_there(tree: TreeState, line: Frontier) -> str:
    """Return why backward comes no further than this frontier, as a clause after a colon."""
    stops = len(line.stops) + len(line.stop_parameters)
    return before_clause(barriers_before(tree, line, modules_of(tree, None)), stops) if stops else _why(tree, line)


def _why(tree: TreeState, line: Frontier) -> str:
    return not_entered_clause(barriers_of(tree, line.never_entered), len(line.never_entered))


def not_entered_clause(found: Barriers, modules: int = 1) -> str:
    """Return why backward never enters modules that ran, as a clause after a colon."""
    kinds = found.kinds.keys()
    it, them, run, have = ("it", "it", "runs", "has") if modules == 1 else ("they", "them", "run", "have")
    if kinds == {Barrier.NO_GRAD} or kinds == {Barrier.NOT_CHECKPOINTED}:
        return f"{it} {run} {_unrecorded(found)}"
    if kinds == {Barrier.DETACHED}:
        return f"{'its output is' if modules == 1 else 'their outputs are'} detached from the loss, or not used in it"
    if kinds == {Barrier.NEW}:
        return f"{it} {have} not been sampled since {it} became trainable"
    if Barrier.NEW in kinds:
        return "some of them have not been sampled since they became trainable"
    if kinds == {Barrier.FROZEN}:
        return f"nothing in {them} or before {them} needs a gradient"
    if kinds <= {Barrier.FROZEN, Barrier.NOT_CALLED}:
        return f"nothing that ran in {them} or before {them} needs a gradient"
    return "each is frozen, run under no_grad, detached or unused"


def before_clause(found: Barriers, stops: int = 1) -> str:
    """Return why backward does not run beyond `stops` places where it stops, as a clause after a colon."""
    kinds, them = found.kinds, "it" if stops == 1 else "them"
    if Barrier.NO_GRAD in kinds or Barrier.NOT_CHECKPOINTED in kinds:
        return f"what comes before {them} runs {_unrecorded(found)}"
    if Barrier.DETACHED in kinds:
        return f"the output of {kinds[Barrier.DETACHED]} is detached from the loss, or not used in it"
    if Barrier.NEW in kinds:
        return f"{kinds[Barrier.NEW]} has not been sampled since it became trainable"
    return f"nothing before {them} needs a gradient"


def _unrecorded(found: Barriers) -> str:
    """Return how the modules run in which autograd records nothing."""
    if Barrier.NO_GRAD in found.kinds:
        return _UNRECORDED[found.mode]
    return f"{_UNRECORDED[GradMode.NOT_CHECKPOINTED.value]}; use_reentrant=False records it"


def _listed(tree: TreeState, indices: Sequence[int]) -> str:
    return _named([called(tree, index) for index in indices[:MAX_NAMED]], len(indices))


def _named(names: Sequence[str], count: int) -> str:
    """Name two of `count` modules or of their stretches, and count the others. `names` are those of the first modules."""
    joined = joined_numbers(names)[:_NAMED]
    words, more = [name for name, _ in joined], count - sum(size for _, size in joined)
    return f"{', '.join(words)} and {more:,} more" if more else " and ".join(words)


def backward_words(found: Backward | None) -> str | None:
    """Say whether and why backward runs through a module, stops in it or never enters it; None while that is unknown."""
    return f"{capitalized(_backward_clause(found))} (step {found.step:,})." if found is not None else None


def backward_sentence(found: Backward | None) -> str:
    """Return the same as a sentence of its own."""
    if found is None:
        return "How far backward runs is not known before a step is sampled."
    clause = _backward_clause(found)
    if found.reach == Reach.NOT_RUN.value and found.step:
        return f"{capitalized(clause)} in step {found.step:,}."
    return f"{capitalized(clause)}." if found.reach in _ASIDE else f"Backward {clause}."


def _backward_clause(found: Backward) -> str:
    if found.reach in _ASIDE:
        return _ASIDE[found.reach]
    if found.stops and found.barriers is not None:
        return f"stops here, at parameters of its own: {before_clause(found.barriers)}"
    if found.barriers is not None:
        return f"never enters it: {not_entered_clause(found.barriers)}"
    never = _named([printable(path) for path in found.never], found.never_count) if found.never else ""
    inside = f", but never into {never}" if never else ""
    if found.reach == Reach.THROUGH.value:
        return f"runs through it to the modules before it{inside}"
    return f"runs in it and ends at parameters of its own{inside}"


def mode_words(state: RunState, index: int) -> str | None:
    """Say under which grad mode a module ran, and whether in train or eval mode; None while that is unknown."""
    flow = state.tree.gradient_flow
    if flow is None or (mode := flow.grad_modes[index]) not in (GradMode.GRAD.value, *_UNRECORDED):
        return None
    how = _UNRECORDED.get(mode)
    words = "With autograd recording"
    if how is not None:
        words = f"{capitalized(how)}: autograd records nothing, whatever requires_grad says"
    return f"{words}; {'train' if flow.training[index] in '1h' else 'eval'} mode."


def kept_words(tree: TreeState, index: int, kept: Kept | None, backward: Backward | None) -> str:
    """Say what autograd saves for backward in the module's own operations, and in its subtree if that is more; and why."""
    if kept is None:
        return "What autograd saves for backward has not been measured yet."
    if kept.bytes == 0:
        return f"Nothing for backward{_why_nothing(backward)} (step {kept.step:,})."
    share = f", {kept.share:.0%} of all" if kept.share is not None else ""
    inside = f"; {short_bytes(kept.own)} by its own operations" if kept.own != kept.bytes else ""
    is_for_own = gets_gradient(tree, subtree(tree.modules[index]))
    reasons = ["for the gradients of its own parameters"] if is_for_own else []
    if kept.passes_on:
        reasons.append(f"for the gradient of {printable(kept.passes_on)}, which passes through here")
    why = f", {', and '.join(reasons)}" if reasons else ""
    return f"{short_bytes(kept.bytes)} for backward{share}{inside} (step {kept.step:,}){why}."


def kept_sentence(kept: Kept | None) -> str | None:
    """Return the same as a short sentence; None where nothing is kept."""
    if kept is None or not kept.bytes:
        return None
    reason = f" for the gradient of {printable(kept.passes_on)}" if kept.passes_on else ""
    return f"Autograd keeps {short_bytes(kept.bytes)} in it{reason}."


def _why_nothing(found: Backward | None) -> str:
    if found is None:
        return ""
    if found.reach == Reach.NOT_ENTERED.value and found.barriers is not None:
        return f": {not_entered_clause(found.barriers)}"
    if found.reach in (Reach.NOT_RUN.value, Reach.SHARED.value):
        return f": {_ASIDE[found.reach]}"
    return ": the gradient passes through, and its operations save nothing for that" if found.reach in ENTERED else ""


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
        label = "earlier" if record is gone[-1] else ""
        lines.append((label, f"{printable(record.name)} (step {record.step or 0:,}): {record_text(record)}."))
    if len(gone) > _EARLIER_SHOWN:
        lines.append(("", f"and {len(gone) - _EARLIER_SHOWN} before these."))
    return lines
