"""What every event has, and what every measurement is."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Event:
    """Anything that happened in a run."""

    at: float
    step: int
    listing: int | None = field(default=None, kw_only=True)
    """The number of the listing of models (`ModelsFound.listing`) that the event's places of modules and parameters belong to.

    None where the event has no such places, or cannot be late.
    """


@dataclass(frozen=True, slots=True)
class Measurement(Event):
    """An event that a later one of its kind replaces or continues. A full queue drops measurements, and nothing else."""
