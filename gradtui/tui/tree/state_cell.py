"""The state of a row in words, or in letters where the tree is narrow. Pure."""

from __future__ import annotations

from functools import lru_cache

from gradtui.protocol.vocabulary import PROBLEM_STATES, ParameterState
from gradtui.run.text.explanation.states import STATE_WORDS
from gradtui.run.text.units import share_text
from gradtui.tui.rendering import STATE_ROLES, Line, Span, elide, fit, state_letter

FREEZE, UNFREEZE, MIXED = "▽", "△", "◇"
"""The symbols of rows with a pending freeze, unfreeze, or both."""

_PENDING_WORDS = {FREEZE: "freeze…", UNFREEZE: "unfreeze…", MIXED: "pending…"}
_CHANGED: dict[float | None, tuple[str, str]] = {0.0: (FREEZE, "frozen"), 1.0: (UNFREEZE, "trainable")}
"""By share of trainable elements: what is known of a row that was toggled since the last sample, as a symbol and as a word."""
_PROBLEMS = frozenset(state.value for state in PROBLEM_STATES)
_ROOM_FOR_WORDS = 9
"""Minimum cells for words; a narrower column has letters."""

TRAINING = frozenset(state.value for state in (
    ParameterState.TRAINED, ParameterState.ZERO, ParameterState.NOT_FINITE, ParameterState.SKIPPED,
))  # fmt: skip
"""The letters of parameters that an optimizer updates with a gradient."""


@lru_cache(maxsize=1024)
def state_cell(letters: str, share: float | None, pending: str, width: int, broken: str = "") -> Line:
    """Return the state of a row in exactly `width` cells.

    Args:
        letters: the distinct states in the row, those that need attention first.
        share: the share of the row's elements that are trainable, 0 to 1; None if unknown.
        pending: the symbol of a pending change, empty if there is none.
        width: cells.
        broken: `NaN` or `Inf` where a gradient is not finite and that is known.
    """
    changed = _CHANGED.get(share) if letters == ParameterState.UNKNOWN.value and not pending else None
    if changed is not None:
        return fit(((elide(changed[width >= _ROOM_FOR_WORDS], width), "muted"),), width)
    if width < _ROOM_FOR_WORDS:
        return _letters(letters, width)
    if pending:
        return fit(((elide(_PENDING_WORDS[pending], width), "pending"),), width)
    if not letters:
        return fit((), width)
    return fit((_word(letters, share, width, broken),), width)


def _word(letters: str, share: float | None, width: int, broken: str) -> Span:
    first = letters[0]
    word, role = STATE_WORDS[ParameterState(first)], STATE_ROLES[first]
    if first == ParameterState.NOT_FINITE.value:
        word = broken or word
    # Of one parameter a part trains where rows of it are frozen.
    is_part = first == ParameterState.TRAINED.value and share is not None and 0 < share < 1
    if len(letters) == 1 and not is_part:
        return elide(word, width), role
    if first in _PROBLEMS:
        return elide(f"{word}…", width), role
    if share:
        words = f"{share_text(share).strip()} trains"
        return words if len(words) <= width else words.partition(" ")[0], STATE_ROLES[ParameterState.TRAINED.value]
    every = [STATE_WORDS[ParameterState(letter)] for letter in letters]
    return next((words for sign in (", ", "/") if len(words := sign.join(every)) <= width), f"{word}…"), role


def _letters(letters: str, width: int) -> Line:
    shown = letters if len(letters) <= width else letters[: width - 1]
    spans: list[Span] = [*map(state_letter, shown)]
    if len(shown) < len(letters):
        spans.append(("…", "faint"))
    return fit(spans, width)
