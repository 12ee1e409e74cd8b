"""What the script logs: the values that it passes to a logger or shows in a progress bar."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.measurements import Measurement

MAX_METRICS = 128
"""Metrics of a run that are kept, the first ones."""
MAX_NAME = 80
"""Characters of a metric's name."""
PROGRESS_BAR = "tqdm"
"""The source that gives way to others: a progress bar shows means, and fewer digits."""
EPOCH = "epoch"
"""The name under which scripts and frameworks log the epoch."""


@dataclass(frozen=True, slots=True)
class MetricPoints:
    """Values of one metric from one source, in their order."""

    name: str
    """Without control characters, at most `MAX_NAME` characters."""
    source: str
    """What the script has called: `wandb`, `tensorboard`, `lightning`, `transformers`, `accelerate`, `mlflow`, `trackio`, `aim`
    or `tqdm`."""
    in_evaluation: bool
    """They were logged in an evaluation, or after one and before the next step."""
    steps: tuple[int, ...]
    """The optimizer step during or after which each was logged, as gradtui counts them, whatever step the script names."""
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class MetricsLogged(Measurement):
    """What the script has logged since the last of these events."""

    points: tuple[MetricPoints, ...]
    epochs: tuple[tuple[int, float], ...] = ()
    """(step, passes over the training data by then), where a DataLoader yields it. The part of a pass counts if it is known."""
    omitted: int = 0
    """Metrics of the run so far that are not kept, because there are more than `MAX_METRICS`."""
    dropped: int = 0
    """Values of the run so far that came faster than they could be passed on, or did not arrive from a device."""
