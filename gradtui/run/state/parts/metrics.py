"""What the script logs, as curves over steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Literal

from gradtui.dataclass import dataclass
from gradtui.protocol.metrics import EPOCH, MAX_METRICS, PROGRESS_BAR, MetricPoints
from gradtui.run.state.parts.curves import Extremes
from gradtui.run.state.series import Series

Side = Literal["training", "validation", ""]
"""Of which data a metric is; empty where neither its name nor the time of logging says so."""

_POINTS = 1024
_VALIDATION = frozenset(("val", "valid", "validation", "eval", "evaluation", "test", "dev", "holdout"))
_TRAINING = frozenset(("train", "training"))
_OF_NO_DATA = frozenset(("lr", "learning_rate", "epoch", "step", "global_step", "time", "seconds", "runtime"))
_PARTS = re.compile(r"[^\W_]+")
_OF_A_FRAMEWORK = frozenset(("step", "epoch"))
"""The endings by which Lightning tells the value of a step from the mean of an epoch."""


def side_of(name: str, *, in_evaluation: bool) -> Side:
    """Return of which data a metric is: by a word in its name, else by whether it was logged in an evaluation."""
    words = {word.casefold() for word in _PARTS.findall(name)}
    if words & _VALIDATION:
        return "validation"
    if words & _TRAINING:
        return "training"
    if not in_evaluation or name.rpartition("/")[2].casefold() in _OF_NO_DATA or words & _OF_NO_DATA:
        return ""
    return "validation"


def is_of_training(name: str) -> bool:
    """Return whether the name says that a metric is of the training."""
    return side_of(name, in_evaluation=False) == "training"


def is_of_either(name: str) -> bool:
    """Return whether a metric of this name may be of the training or of the validation: a learning rate is of neither."""
    return not side_of(name, in_evaluation=False) and side_of(name, in_evaluation=True) == "validation"


def quantity_of(name: str) -> str:
    """Return what a metric measures, whatever data it is of: `loss` of `train/loss`, `val_loss` and `train_loss_epoch`."""
    words = [word.casefold() for word in _PARTS.findall(name)]
    kept = [word for word in words if word not in _VALIDATION and word not in _TRAINING]
    if len(kept) > 1 and kept[-1] in _OF_A_FRAMEWORK:
        del kept[-1]
    return " ".join(kept or words) or name


@dataclass
class Metric:
    """One metric of the run."""

    name: str
    source: str
    """As in `MetricPoints`."""
    side: Side
    points: Series = field(default_factory=lambda: Series(_POINTS))
    extremes: Extremes = field(default_factory=Extremes)
    """Of all values that were the last of their step when they arrived."""

    def take(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Add values. The last one of a step counts."""
        for step, value in zip(steps, values):
            if self.points.steps and step <= self.points.steps[-1]:
                # A step may be taken back later: a device reports that a loss scaler has skipped it.
                self.points.replace_last(value)
                self.extremes.measured -= 1
            else:
                self.points.append(step, value)
            self.extremes.take(step, value)

    @property
    def last(self) -> float | None:
        """The newest value."""
        return self.points.last


@dataclass
class Metrics:
    """All metrics by name, in the order in which they came."""

    by_name: dict[str, Metric] = field(default_factory=dict)
    passes: Series = field(default_factory=Series)
    """(step, passes over the training data by then)."""
    omitted: int = 0
    dropped: int = 0
    """As in `MetricsLogged`."""
    pinned: str = ""
    """The name, or words of the name, of the metric that the viewer shows beside the loss; empty for none."""

    def take(self, points: MetricPoints) -> None:
        """Add values of one metric.

        A metric is of the source that logs it first, so that one that goes through several is shown once. Only a progress bar
        gives way to another one.
        """
        metric = self.by_name.get(points.name)
        if metric is not None and metric.source == PROGRESS_BAR != points.source:
            metric.source, metric.points, metric.extremes = points.source, Series(_POINTS), Extremes()
        elif metric is None:
            if len(self.by_name) >= MAX_METRICS:
                return
            side = side_of(points.name, in_evaluation=points.in_evaluation)
            metric = self.by_name[points.name] = Metric(points.name, points.source, side)
        if metric.source == points.source:
            metric.take(points.steps, points.values)

    def matching(self, words: str) -> list[Metric]:
        """Return the metrics whose names contain all words. Commas separate alternatives."""
        alternatives = [part.split() for part in words.casefold().split(",") if part.strip()]
        return [
            metric
            for name, metric in self.by_name.items()
            if any(all(word in name.casefold() for word in each) for each in alternatives)
        ]

    def named(self, name: str) -> Metric | None:
        """Return the metric of a name, else the first one whose name contains its words; None if there is none."""
        return self.by_name.get(name) or next(iter(self.matching(name)), None)

    @property
    def has_epochs(self) -> bool:
        """Whether the epoch of a step is known, at least about."""
        return len(self._epochs) > 1

    @property
    def _epochs(self) -> Series:
        """What the script logs as its epoch, else the passes over the training data."""
        logged = self.by_name.get(EPOCH)
        return logged.points if logged is not None and len(logged.points) > 1 else self.passes

    def epochs_of(self, steps: Sequence[float]) -> list[float]:
        """Return the epochs of steps that are in order, which are in order too. `has_epochs` must be true.

        Between known steps, and beyond the first and the last one, they are interpolated.
        """
        known, epochs = self._epochs, list[float]()
        whole, at, highest = _slope(known, 0, len(known) - 1), 1, 0.0
        for step in steps:
            while at < len(known) - 1 and known.steps[at] < step:
                at += 1
            is_beyond = step > known.steps[-1]
            near, slope = (len(known) - 1, whole) if is_beyond else (at, _slope(known, at - 1, at))
            highest = max(highest, known.values[near] + (step - known.steps[near]) * slope)
            epochs.append(highest)
        return epochs


def _slope(known: Series, first: int, last: int) -> float:
    return (known.values[last] - known.values[first]) / (known.steps[last] - known.steps[first])
