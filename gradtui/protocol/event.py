"""What every event has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Anything that happened in a run."""

    at: float
    step: int
