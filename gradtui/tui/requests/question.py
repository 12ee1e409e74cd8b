"""The question of a form dialog: its fields, and what makes the command of the typed values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtui.dataclass import dataclass
from gradtui.tui.requests.requests import Make, Refusal


@dataclass(frozen=True)
class Field:
    """One input field of a form."""

    label: str
    value: str = ""
    hint: str = ""
    """Placeholder shown while the field is empty."""


@dataclass(frozen=True)
class Question:
    """A small form whose answer makes a command."""

    title: str
    fields: tuple[Field, ...]
    answer: Callable[[Sequence[str]], Make | Refusal]
    """Maps the typed texts, one per field, to the command or to a refusal that names the error."""
    notes: tuple[str, ...] = ()
    """Lines above the fields."""
