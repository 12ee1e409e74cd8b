"""What is wrong with a run: findings, as the rules of `gradtui.run.diagnostics` report them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from gradtui.dataclass import dataclass

EvidenceValue = str | int | float | bool | None


class Level(str, Enum):
    """How grave a finding is."""

    ERROR = "error"
    """The run does not do what its script asks for: something never trains, or the memory will run out."""
    WARNING = "warning"
    """Something is very likely not as intended."""
    NOTE = "note"
    """Something may be intended, and is worth knowing."""

    __str__ = str.__str__


LEVELS = tuple(Level)
"""Gravest first."""


class Status(str, Enum):
    """How sure a finding is."""

    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"

    __str__ = str.__str__


@dataclass(frozen=True)
class Finding:
    """Something that a rule says is wrong."""

    rule: str
    """The rule's id: `GT203`."""
    level: Level
    status: Status
    message: str
    """What is wrong in this run, in one sentence with numbers and without a full stop."""
    why: str
    """Why that is wrong, in one sentence."""
    remedy: str
    """What to do, in one sentence."""
    first_step: int
    """The first step of which it is known; 0 before the first step."""
    last_step: int
    """The last step of which it is known."""
    cleared_step: int | None = None
    """The step after which it was no longer so; None while it is."""
    paths: tuple[str, ...] = ()
    """Paths of the parameters or modules concerned, in the order of the model."""
    evidence: Mapping[str, EvidenceValue] = field(default_factory=dict)
    """Numbers by name."""
    command: str | None = None
    """The words of the gradtui command that mends it, if there is one."""
    explains: tuple[str, ...] = ()
    """Ids of the rules whose matches follow from this finding, and are not findings of their own."""
    file: str | None = None
    """The script's line, if it is known."""
    line: int | None = None
    samples: int = 1
    """Number of sampled steps in which the rule matched."""
    last_sample: int = 0
    """The number of the newest one of these."""
    key: str = ""
    """Distinguishes several findings of one rule."""

    @property
    def is_open(self) -> bool:
        """Whether it is still so."""
        return self.cleared_step is None


def open_findings(findings: list[Finding]) -> list[Finding]:
    """Return the confirmed findings that are still so, gravest first."""
    return [each for each in by_gravity(findings) if each.is_open and each.status is Status.CONFIRMED]


def newest_first(findings: list[Finding]) -> list[Finding]:
    """Return all findings, those that are known since the latest step first."""
    return sorted(by_gravity(findings), key=lambda each: -each.first_step)


def by_gravity(findings: list[Finding]) -> list[Finding]:
    """Return findings sorted: open ones first, then by level, confirmed before suspected, then by first step."""
    return sorted(
        findings,
        key=lambda each: (
            not each.is_open,
            LEVELS.index(each.level),
            each.status is not Status.CONFIRMED,
            each.first_step,
            each.rule,
        ),
    )
