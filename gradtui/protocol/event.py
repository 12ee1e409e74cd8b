"""The base classes of events and measurements."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Event:
    """Base class of everything that happens in a run."""

    at: float
    step: int
    listing: int | None = field(default=None, kw_only=True)
    """The listing of models (`ModelsFound.listing`) that the event's indexes of modules and parameters refer to.

    None if the event has no such indexes, or cannot arrive after a newer listing.
    """


@dataclass(frozen=True, slots=True)
class Measurement(Event):
    """An event that a later one of its kind replaces or continues. A full queue drops measurements and no other events."""
