"""Describes how far backward reaches in a module, what autograd saves there and why, and the run's models. Pure."""

from __future__ import annotations

from gradtui.protocol.vocabulary import ENTERED, GradMode, ParameterState, Reach
from gradtui.state.frontier import frontier
from gradtui.state.model_records import model_records
from gradtui.state.run_state import RunState, TreeState
from gradtui.state.selectors import kept_for, measured_step, saved_bytes, subtree
from gradtui.text import record_text, short_bytes, why_it_stops, why_not_entered
from gradtui.tui.rendering import printable

_EARLIER_SHOWN = 8

_MODES = {
    GradMode.GRAD.value: "With autograd recording",
    GradMode.NO_GRAD.value: "Under no_grad: autograd records nothing, whatever requires_grad says",
    GradMode.INFERENCE.value: "In inference mode: autograd records nothing, whatever requires_grad says",
    GradMode.NOT_CHECKPOINTED.value: (
        "In a reentrant checkpoint, no input of which requires a gradient: autograd records nothing, "
        "whatever requires_grad says"
    ),
}


def backward_words(state: RunState, index: int) -> str | None:
    """Say whether and why backward runs through a module, stops in it or never enters it; None while that is unknown."""
    tree = state.tree
    reach = tree.reach
    if reach is None or not reach.reach:
        return None
    letter, of_step = reach.reach[index], f"(step {measured_step(tree, index):,})"
    if letter == Reach.NOT_ENTERED.value:
        return f"Never enters it: {why_not_entered(tree, index)} {of_step}."
    if letter == Reach.NOT_RUN.value:
        return f"It was not called {of_step}."
    if letter == Reach.UNKNOWN.value:
        return f"Unknown: one operation stands for what several modules did {of_step}."
    line = frontier(tree)
    end = index + tree.modules[index].subtree_modules
    if line is not None and index in line.stops:
        return f"Stops here, at parameters of its own: {why_it_stops(tree, index)} {of_step}."
    never = [each for each in line.never_entered if index < each < end] if line is not None else []
    inside = f", but never into {_names(tree, never)}" if never else ""
    if letter == Reach.THROUGH.value:
        return f"Runs through it and on to what is before it{inside} {of_step}."
    return f"Runs in it and ends at parameters of its own{inside} {of_step}."


def mode_words(state: RunState, index: int) -> str | None:
    """Say under which grad mode a module ran, and whether in train or eval mode; None while that is unknown."""
    reach = state.tree.reach
    words = _MODES.get(reach.grad_modes[index]) if reach is not None else None
    if reach is None or words is None:
        return None
    return f"{words}; {'train' if reach.training[index] == '1' else 'eval'} mode."


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
    return f"{short_bytes(whole)} for backward{share}{inside} (step {step:,}){_why(tree, index)}."


def _why(tree: TreeState, index: int) -> str:
    reasons = []
    if any(tree.trainable[i] == "1" and tree.states[i] != _UNREACHED for i in subtree(tree.modules[index])):
        reasons.append("for the gradients of its own parameters")
    parameter = kept_for(tree, index)
    if parameter is not None:
        path = printable(tree.parameters[parameter].path)
        reasons.append(f"since {path} before it needs a gradient, which passes through here")
    return f", {', and '.join(reasons)}" if reasons else ""


def _why_nothing(tree: TreeState, index: int) -> str:
    letter = tree.reach.reach[index] if tree.reach is not None and tree.reach.reach else ""
    if letter == Reach.NOT_ENTERED.value:
        return f": {why_not_entered(tree, index)}"
    if letter == Reach.NOT_RUN.value:
        return ": it was not called"
    if letter and letter in ENTERED:
        return ": the gradient passes, and its operations keep nothing of their own for that"
    return ""


_UNREACHED = ParameterState.UNREACHED.value


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


def _names(tree: TreeState, indices: list[int]) -> str:
    first = printable(tree.modules[indices[0]].path)
    return first if len(indices) == 1 else f"{first} and {len(indices) - 1:,} more"
