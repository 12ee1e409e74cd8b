"""The boundary that is crossed now: what the handlers of commands must know of it. Training thread only."""

from __future__ import annotations

from gradtui.dataclass import dataclass


@dataclass
class Crossing:
    """The boundary that is being crossed, or was crossed last. One object for the whole run."""

    step: int = 0
    """The number of executed steps."""
    by_hand: bool = False
    """The script has no optimizer and updates its parameters itself."""
    is_captured: bool = False
    """The step is a replay of a CUDA graph."""
    is_refreshed: bool = False
    """The tree has been verified against the models at this boundary."""
    command: int = 0
    """The id of the command that is carried out now."""

    def begin(self, step: int, *, by_hand: bool | None = None, is_captured: bool | None = None) -> None:
        """Begin another boundary, after `step` executed steps. What is None stays as at the boundary before."""
        self.step, self.is_refreshed = step, False
        if by_hand is not None:
            self.by_hand = by_hand
        if is_captured is not None:
            self.is_captured = is_captured
