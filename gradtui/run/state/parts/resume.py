"""What the script has saved of its training, and what the run had at first of one that it has loaded. Pure."""

from __future__ import annotations

from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol import events as ev

MAX_SAVED = 200
"""Most saved trainings, and first batches, that are remembered: the newest ones."""


@dataclass
class ResumeRecord:
    """The events about saved and loaded trainings."""

    saved: list[ev.CheckpointSaved] = field(default_factory=list)
    """The newest ones."""
    resumed: dict[int, ev.RunResumed] = field(default_factory=dict)
    """By index of the optimizer: the newest event."""
    refused: dict[tuple[int, int], ev.GroupsRefused] = field(default_factory=dict)
    """By index of the optimizer, and the step: the newest event."""
    batches: dict[int, ev.FirstBatch] = field(default_factory=dict)
    """By number of the step that used the batch, of the first optimizer in it."""
