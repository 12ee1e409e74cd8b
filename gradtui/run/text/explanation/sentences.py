"""Explain a parameter or a module in a few sentences: why it trains or not, and how far a step moves it. Pure."""

from __future__ import annotations

from gradtui.run.explanation.facts import (
    Explanation,
    Holding,
    ModuleExplanation,
    Moves,
    Owner,
    ParameterExplanation,
    Passing,
    RankDifference,
    Shard,
)
from gradtui.run.text.explanation.backward import backward_sentence, kept_sentence
from gradtui.run.text.explanation.states import STATE_WORDS, state_sentences
from gradtui.run.text.gradients import ratio_words
from gradtui.run.text.module_times import module_time_sentence
from gradtui.run.text.rank_norms import differing_words
from gradtui.run.text.rows import rows_text
from gradtui.run.text.units import listed, number_text, plural, short_bytes, short_rate, steps_of
from gradtui.system.printable import printable

CONTENDED = (
    "The script sets its requires_grad to True. gradtui removes its gradient before the optimizer's step, so it does not "
    "move, and freezes it again at each step boundary (not where this is one of several ranks)."
)
BUFFER = "No gradient is computed for it, and no optimizer updates it. Only code writes to it."
_NAMED = 2


def sentences(row: Explanation, *, counts_problems: bool = True) -> list[str]:
    """Return what happens to a row and why, the most important sentence first.

    Without `counts_problems` those of a module do not count the parameters in problem states.
    """
    moves = moves_sentence(row.moves) if row.moves is not None else None
    norm = f"Its gradient norm is of step {row.old_norm:,}." if row.old_norm is not None else None
    first = _of_parameter(row) if isinstance(row, ParameterExplanation) else []
    if isinstance(row, ModuleExplanation):
        first = _of_module(row, counts_problems=counts_problems)
    return [each for each in (*first, moves, norm, held_words(row.shard)) if each]


def _of_parameter(row: ParameterExplanation) -> list[str | None]:
    said: list[str | None] = [rows_text(row.rows), *state_sentences(row.kind, row.cause)]
    said.append(CONTENDED if row.is_contended else None)
    if row.trainable:
        said.append(f"The gradient comes through {listed([*map(printable, row.way)], _NAMED)}." if row.way else None)
        said.append(_owner(row.owners[0]) if row.owners else None)
    return [*said, _difference(row.differs)]


def _of_module(row: ModuleExplanation, *, counts_problems: bool) -> list[str | None]:
    found = [f"{count:,} {STATE_WORDS[kind].rstrip('!')}" for kind, count in row.problems] if counts_problems else []
    return [
        f"Of its {len(row.parameters):,} tensors: {listed(found)}." if found else None,
        holding_text(row.holding),
        _difference(row.differs),
        backward_sentence(row.backward),
        passing_sentence(row.passing),
        kept_sentence(row.kept),
        module_time_sentence(row.time),
    ]


def moves_sentence(moves: Moves) -> str:
    """Say how far a step moves a row."""
    return f"Moves {ratio_words(moves.ratio)}{f' ({steps_of(*moves.steps)})' if moves.steps is not None else ''}."


def holding_text(found: Holding | None) -> str | None:
    """Say which running statistics are held in a module; None where none are."""
    if found is None:
        return None
    if found.itself:
        return "Until it is unfrozen it runs in eval mode: it normalises by its running statistics and does not update them."
    return f"In eval mode until unfrozen: {plural(found.modules, 'module')} in it ({listed(found.kinds)})."


def passing_sentence(found: Passing | None) -> str | None:
    """Describe the gradient that passes through a frozen module, with its step if that is old; None if it was not read."""
    if found is None:
        return None
    norm, old = number_text(found.norm).strip(), f" ({steps_of(found.step, found.step)})" if found.is_old else ""
    return f"The gradient that passes through has norm {norm} at its output; nothing stores it{old}."


def held_words(shard: Shard | None) -> str | None:
    """Say how much of sharded parameters this rank holds, in few words: `Sharded: this rank holds 2.0 of 4.0 KiB.`"""
    return f"Sharded: this rank holds {_held(shard)}." if shard is not None else None


def shard_words(shard: Shard | None) -> str | None:
    """Return the same with the elements."""
    if shard is None:
        return None
    return (
        f"Sharded: this rank holds {shard.elements:,} of the {shard.of_elements:,} elements, {_held(shard)}. Statistics of "
        "elements are those of its part."
    )


def _held(shard: Shard) -> str:
    return f"{short_bytes(shard.bytes).strip()} of {short_bytes(shard.of_bytes).strip()}"


def _owner(owner: Owner) -> str:
    rate = owner.settings.learning_rate if owner.settings is not None else None
    steps = f", and has made {owner.steps[0]:,} of {owner.steps[1]:,} steps" if owner.steps is not None else ""
    return f"{owner.type_name} owns it{f', lr {short_rate(rate)}' if rate is not None else ''}{steps}."


def _difference(found: RankDifference | None) -> str | None:
    if found is None:
        return None
    name = f"{printable(found.path)}: " if found.path else ""
    return f"{name}{differing_words(found.norms, found.ranks)}."
