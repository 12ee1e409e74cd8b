"""What carrying out a command has changed, in words and so that it can be taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gradtui.protocol.vocabulary import Changed

__all__ = ["Applied", "Changed"]


@dataclass(frozen=True)
class Applied:
    """What a command changed."""

    text: str
    parameters: tuple[int, ...]
    undo: Callable[[], Applied] | None = field(default=None, compare=False)
    """Takes it back at a later boundary. Raises `Refused` where that cannot be. Keeps none of the script's objects alive."""
    changed: tuple[Changed, ...] = ()
    """What was frozen and unfrozen, in order."""
