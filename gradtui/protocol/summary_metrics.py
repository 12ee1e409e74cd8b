"""The part of the summary about what the script logs."""

from __future__ import annotations

from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol.json_objects import INLINED
from gradtui.protocol.summary_gradients import Course


@dataclass(frozen=True)
class MetricCourse:
    """The ends and the extremes of a metric that the script logs. Its steps are those of gradtui."""

    name: str
    source: str
    """The library whose call gradtui has read: `wandb`, `tensorboard`, `lightning`, `transformers`, `accelerate`, `mlflow`,
    `trackio`, `aim` or `tqdm`."""
    of: str | None
    """`training` or `validation`, by its name or by when it was logged; None where neither says so."""
    course: Course = field(metadata=INLINED)
