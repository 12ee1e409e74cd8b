"""The parts of `RunSummary` about what commands have changed. None is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.protocol.json_objects import INLINED, Number


@dataclass(frozen=True)
class ExtendedOptimizer:
    """An optimizer that holds parameters which commands have added."""

    optimizer: str
    own: int
    """Number of the script's own parameters."""
    added: tuple[str, ...]


@dataclass(frozen=True)
class FrozenRows:
    """The rows of a parameter that commands hold frozen."""

    path: str
    rows: str
    """As a command names them: `0:32000`. Of many ranges only the first, and an ellipsis."""
    frozen: int
    count: int
    """The rows of the parameter."""


@dataclass(frozen=True)
class Freezes:
    """What commands hold frozen at the end: paths."""

    frozen: tuple[str, ...]
    contending: tuple[str, ...]
    """Those that the script has set back to trainable since."""
    added_to_optimizers: tuple[ExtendedOptimizer, ...]
    trained_and_taken_out: tuple[str, ...]
    holding_statistics: tuple[str, ...]
    """Modules whose running statistics are held."""
    rows: tuple[FrozenRows, ...]
    """Parameters of which only some rows are frozen."""


@dataclass(frozen=True)
class Receipt:
    """What a change has changed: pairs of the sampled steps before and after it."""

    text: str
    carried_out: bool
    peak_bytes: tuple[int, ...] | None
    total_bytes: tuple[int, ...] | None
    activations_bytes: tuple[int, ...] | None
    seconds: tuple[Number, ...] | None
    """Before, after, and the margin up to which a change could be noise."""
    joined: Mapping[str, int]
    """Number of tensors that joined each optimizer."""
    other_changes: int


@dataclass(frozen=True)
class Intervention:
    """A change of the run by a command."""

    step: int
    seconds: Number
    text: str
    command: str
    """Its word in schedules."""
    fields: Mapping[str, Any] = field(metadata=INLINED)
    """Those of the command, as in a schedule."""
    origin: str | None
    """Who sent it: `keyboard`, `script`, or the name of a client; None if nobody has said."""
    trainable: bool | None
    skipped: int
    """Steps that a loss scaler had skipped."""
    parameters: tuple[str, ...]
    """Paths of those that it froze or unfroze."""
    receipt: Receipt | None


@dataclass(frozen=True)
class Change:
    """A change of the run in words, and what came of it."""

    step: int
    """The step after which it was carried out or refused; while it waits, the present one."""
    status: str
    """`pending`, `applied`, `refused` or `undone`."""
    words: str
    answer: str
    """What it did; empty where `results` say it."""
    results: tuple[str, ...]
    """What was measured before and after it, or why it was refused."""


@dataclass(frozen=True)
class Return:
    """A return to a kept state."""

    step: int
    """After which it was made. Later steps are counted from there."""
    to_step: int
    """The step of which the run had the values then."""
    state: int
    """The number of the kept state."""
    name: str | None
    text: str
    why: str | None
    """In words; null if the user asked."""
    complete: bool
    """Whether every value was equal to the copy."""


@dataclass(frozen=True)
class Forecast:
    """What was forecast of a change, and what was measured: changes in bytes by category."""

    step: int
    command: Mapping[str, Any]
    other_changes: int
    predicted: Mapping[str, int | None]
    measured: Mapping[str, int | None]
    exact: bool
    predicted_seconds: Number
    """Of a step after the change, an estimate; null where it was not forecast."""
    measured_seconds: Number
    """The same as it was measured; null where it differs from that before by no more than its noise."""


@dataclass(frozen=True)
class ForecastError:
    """The error of the forecasts of a category."""

    changes: int
    error: Number
    """Sum of the absolute errors, divided by the sum of the measured changes without their signs."""


@dataclass(frozen=True)
class Refused:
    """A command that was not carried out."""

    step: int
    command: str
    reason: str
