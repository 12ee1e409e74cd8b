"""The tables of a recording: their names, and the names and types of their columns.

`docs/reference/export.md` says what they mean.

A unit is the end of a name: `_s` for seconds (since the run started, or of a duration), `_bytes`, `_fraction` of 1. A column
has the same type in each table, so that all tables fit into one.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, Phase

Value = str | int | float | bool | None
Row = dict[str, Value]
"""The values of the columns of a table, by their names; None where they are unknown."""


class Kind(Enum):
    """The type of a column."""

    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    FLAG = "flag"


@dataclass(frozen=True)
class Table:
    """A table, with the types of its columns by their names."""

    name: str
    columns: dict[str, Kind]


Rows = Iterator[tuple[Table, Row]]

_INTEGER, _NUMBER, _TEXT, _FLAG = Kind.INTEGER, Kind.NUMBER, Kind.TEXT, Kind.FLAG
_WHEN = {"rank": _INTEGER, "step": _INTEGER, "time_s": _NUMBER}
_PHASES = {f"{phase}_s": _NUMBER for phase in Phase}

RUN = Table("run", {"name": _TEXT, "value": _TEXT})
STEPS = Table(
    "steps",
    {
        **_WHEN,
        "optimizer": _INTEGER,
        "optimizer_name": _TEXT,
        "loss": _NUMBER,
        "loss_of_backwards": _TEXT,
        "gradient_norm": _NUMBER,
        "gradient_norm_before_clipping": _NUMBER,
        "clip_max_norm": _NUMBER,
        "gradients_are_as_applied": _FLAG,
        "learning_rate": _NUMBER,
        "step_time_s": _NUMBER,
    },
)
TIMES = Table(
    "times",
    {
        **_WHEN,
        "steps": _INTEGER,
        "micro_steps": _INTEGER,
        "skipped_steps": _INTEGER,
        "began_s": _NUMBER,
        "ended_s": _NUMBER,
        "step_time_s": _NUMBER,
        **_PHASES,
        "overhead_s": _NUMBER,
    },
)
DEVICE_TIMES = Table("device_times", {**_WHEN, **_PHASES, "overhead_s": _NUMBER})
MEMORY = Table(
    "memory",
    {
        **_WHEN,
        "phase": _TEXT,
        **{f"{category}_bytes": _INTEGER for category in MEMORY_CATEGORIES},
        "total_bytes": _INTEGER,
        "peak_bytes": _INTEGER,
        "peak_bound": _TEXT,
        "peak_is_exact": _FLAG,
        "is_exact": _FLAG,
        "offloaded_is_outside_total": _FLAG,
    },
)
STEP_MEMORY = Table(
    "step_memory",
    {
        **_WHEN,
        "forward_bytes": _INTEGER,
        "backward_bytes": _INTEGER,
        "optimizer_bytes": _INTEGER,
        "peak_bytes": _INTEGER,
        "peak_bound": _TEXT,
        "peak_is_exact": _FLAG,
    },
)
METRICS = Table(
    "metrics",
    {
        **_WHEN,
        "metric": _TEXT,
        "metric_value": _NUMBER,
        "metric_of": _TEXT,
        "metric_source": _TEXT,
    },
)
MACHINE = Table(
    "machine",
    {
        **_WHEN,
        "device": _INTEGER,
        "host_rss_bytes": _INTEGER,
        "host_available_bytes": _INTEGER,
        "host_total_bytes": _INTEGER,
        "device_process_bytes": _INTEGER,
        "device_used_bytes": _INTEGER,
        "device_total_bytes": _INTEGER,
        "driver_reserved_bytes": _INTEGER,
        "requested_bytes": _INTEGER,
        "allocated_bytes": _INTEGER,
        "reserved_bytes": _INTEGER,
        "utilisation_fraction": _NUMBER,
    },
)
GROUPS = Table(
    "groups",
    {
        **_WHEN,
        "optimizer": _INTEGER,
        "optimizer_type": _TEXT,
        "group": _INTEGER,
        "learning_rate": _NUMBER,
        "weight_decay": _NUMBER,
    },
)
GRADIENT_NORMS = Table("gradient_norms", {**_WHEN, "module": _TEXT, "parameter": _TEXT, "gradient_norm": _NUMBER})
GRADIENTS = Table(
    "gradients",
    {
        **_WHEN,
        "module": _TEXT,
        "parameter": _TEXT,
        "max_abs": _NUMBER,
        "mean": _NUMBER,
        "std": _NUMBER,
        "zero_fraction": _NUMBER,
        "not_finite": _INTEGER,
        "weight_norm": _NUMBER,
        "update_ratio": _NUMBER,
        "update_ratio_is_exact": _FLAG,
    },
)
ACTIVATIONS = Table("activations", {**_WHEN, "module": _TEXT, "saved_bytes": _INTEGER, "recomputed_bytes": _INTEGER})
PAUSES = Table("pauses", {**_WHEN, "duration_s": _NUMBER, "reason": _TEXT})
EVENTS = Table("events", {**_WHEN, "kind": _TEXT, "text": _TEXT})
PARAMETERS = Table(
    "parameters",
    {
        "rank": _INTEGER,
        "module": _TEXT,
        "parameter": _TEXT,
        "shape": _TEXT,
        "dtype": _TEXT,
        "elements": _INTEGER,
        "parameter_bytes": _INTEGER,
        "is_trainable": _FLAG,
        "state": _TEXT,
        "gradient_norm": _NUMBER,
    },
)
RANKS = Table(
    "ranks",
    {
        "rank": _INTEGER,
        "generation": _INTEGER,
        "local_rank": _INTEGER,
        "host": _TEXT,
        "pid": _INTEGER,
        "joined_s": _NUMBER,
        "left_s": _NUMBER,
        "steps": _INTEGER,
        "micro_steps": _INTEGER,
        "exit_code": _INTEGER,
        "reason": _TEXT,
    },
)
FINDINGS = Table(
    "findings",
    {
        "rule": _TEXT,
        "level": _TEXT,
        "status": _TEXT,
        "first_step": _INTEGER,
        "last_step": _INTEGER,
        "cleared_step": _INTEGER,
        "message": _TEXT,
        "why": _TEXT,
        "remedy": _TEXT,
        "paths": _TEXT,
        "file": _TEXT,
        "line": _INTEGER,
    },
)
CHANGES = Table(
    "changes",
    {
        **_WHEN,
        "command": _TEXT,
        "origin": _TEXT,
        "status": _TEXT,
        "text": _TEXT,
        "receipt": _TEXT,
        "verified": _TEXT,
        "peak_before_bytes": _INTEGER,
        "peak_after_bytes": _INTEGER,
        "activations_before_bytes": _INTEGER,
        "activations_after_bytes": _INTEGER,
        "step_time_before_s": _NUMBER,
        "step_time_after_s": _NUMBER,
    },
)

TABLES = (
    RUN, STEPS, METRICS, TIMES, DEVICE_TIMES, MEMORY, STEP_MEMORY, MACHINE, GROUPS, GRADIENT_NORMS, GRADIENTS, ACTIVATIONS,
    PAUSES, EVENTS, PARAMETERS, RANKS, FINDINGS, CHANGES,
)  # fmt: skip
"""All tables."""
