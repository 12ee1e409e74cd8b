"""The parts of `RunSummary` about how a run ended, and the ranks of a job. None is unknown."""

from __future__ import annotations

from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol.json_objects import FINITE, Number


@dataclass(frozen=True)
class RunError:
    """What ended the script, if it failed."""

    headline: str
    """What it raised, in one line; empty if it raised nothing."""
    traceback: str | None
    file: str | None
    """The innermost line of the script that raised it or called what raised it."""
    line: int | None


@dataclass(frozen=True)
class EndRow:
    """A row of the closing lines.

    Args:
        label: one word.
        text: a clause without a full stop.
        level: how grave it is, `error`, `warning` or `note`; None for a plain fact.
    """

    label: str
    text: str
    level: str | None = None


@dataclass(frozen=True)
class Rank:
    """A process of a job."""

    rank: int
    local_rank: int
    host: str
    pid: int
    generation: int
    """How often the launcher had restarted them."""
    steps: int
    micro_steps: int
    exit_code: int | None
    left: str | None
    """Why its connection ended before its run."""
    own_step_seconds: Number = None
    """Time of a step without backward, in which ranks also wait for each other."""
    bytes: int | None = None
    """The most bytes at the end of a phase of the last sampled steps."""
    gradient_norm: Number = field(default=None, metadata=FINITE)
    """Of all its gradients, at the newest step that all ranks have measured; without such a step, the newest one."""
    trouble: str | None = None
    """`failed`, `gone`, `silent`, `behind` or `slow`; None where nothing is wrong, and for a process that was restarted."""
    in_words: str = ""
    """What is wrong with it, or that it has ended; its host where neither is so."""


@dataclass(frozen=True)
class Job:
    """The processes of a job together."""

    size: int
    shown: int | None
    """The rank whose models, curves, memory and changes the summary has."""
    generation: int
    """How often the launcher has restarted them."""
    in_words: str
    """How they have ended."""
