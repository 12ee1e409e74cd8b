"""Describe in words where backward runs and stops in a module, and what autograd saves there, with the reasons. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol.vocabulary import ENTERED, GradMode, Reach
from gradtui.run.explanation.facts import Backward, Kept
from gradtui.run.explanation.page_facts import ModuleDetails
from gradtui.run.state.backward.barriers import Barrier, Barriers
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


def named(names: Sequence[str], count: int) -> str:
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
    never = named([printable(path) for path in found.never], found.never_count) if found.never else ""
    inside = f", but never into {never}" if never else ""
    if found.reach == Reach.THROUGH.value:
        return f"runs through it to the modules before it{inside}"
    return f"runs in it and ends at parameters of its own{inside}"


def mode_words(ran: tuple[str, bool] | None) -> str | None:
    """Say under which grad mode a module ran, and whether in train or eval mode; None while that is unknown."""
    if ran is None or ran[0] not in (GradMode.GRAD.value, *_UNRECORDED):
        return None
    how = _UNRECORDED.get(ran[0])
    words = "With autograd recording"
    if how is not None:
        words = f"{capitalized(how)}: autograd records nothing, whatever requires_grad says"
    return f"{words}; {'train' if ran[1] else 'eval'} mode."


def kept_words(kept: Kept | None, backward: Backward | None, *, is_for_own: bool) -> str:
    """Say what autograd saves for backward in the module's own operations, and in its subtree if that is more; and why."""
    if kept is None:
        return "What autograd saves for backward has not been measured yet."
    if kept.bytes == 0:
        return f"Nothing for backward{_why_nothing(backward)} (step {kept.step:,})."
    share = f", {kept.share:.0%} of all" if kept.share is not None else ""
    inside = f"; {short_bytes(kept.own)} by its own operations" if kept.own != kept.bytes else ""
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


def model_lines(found: ModuleDetails) -> list[tuple[str, str]]:
    """Return (label, words) for the root of a model: what trains and how it runs, and the same for models that are gone."""
    own, gone = found.record, found.earlier
    lines = [("model", f"{record_text(own)}.")] if own is not None and own.regimes else []
    for record in gone[:_EARLIER_SHOWN]:
        label = "earlier" if record is gone[0] else ""
        lines.append((label, f"{printable(record.name)} (step {record.step or 0:,}): {record_text(record)}."))
    if len(gone) > _EARLIER_SHOWN:
        lines.append(("", f"and {len(gone) - _EARLIER_SHOWN} before these."))
    return lines
