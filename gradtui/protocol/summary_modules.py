"""The part of `RunSummary` about what trains, as a short table. None is unknown."""

from __future__ import annotations

from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol.json_objects import FINITE, Number


@dataclass(frozen=True)
class StateCount:
    """The number of tensors in a state."""

    state: str
    """The letter of the state."""
    word: str
    tensors: int


@dataclass(frozen=True)
class ModuleRow:
    """One row: a module with all that is in it, several modules that are alike, or parameters of one module."""

    depth: int
    name: str
    kind: str
    """The type of the module; empty for parameters."""
    path: str
    modules: int
    """How many modules the row stands for; 0 for parameters."""
    states: tuple[StateCount, ...]
    elements: int
    norm: Number = field(metadata=FINITE)
    """L2 norm of the last gradients."""
    saved: int | None
    """Bytes that autograd keeps for backward in it; None for parameters too."""
    why: tuple[str, ...]
    """Sentences; of the first module if the row stands for several."""
    has_rows: bool = False
    """Whether the rows below it are its parts."""


@dataclass(frozen=True)
class ModuleTable:
    """What trains, and why not: parts with the same state for the same reason share a row."""

    rows: tuple[ModuleRow, ...]
    omitted: int = 0
    """Number of further rows."""
    norms_step: int | None = None
    """The step of the norms."""
