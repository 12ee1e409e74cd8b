"""Curves over steps: of the steps of each optimizer, and of the memory of each step."""

from __future__ import annotations

import math
from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol import events as ev
from gradtui.protocol.device_memory import DeviceMemory
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.parts.bounds import Bound
from gradtui.run.state.parts.norm_summary import NormSummary
from gradtui.run.state.series import Series


@dataclass
class Extremes:
    """The extremes of all finite values of a curve, of which the curve itself may have lost some."""

    measured: int = 0
    """Number of values, those that are not finite included."""
    smallest: float | None = None
    smallest_step: int | None = None
    largest: float | None = None
    largest_step: int | None = None

    def take(self, step: int, value: float) -> None:
        """Add a value."""
        self.measured += 1
        if not math.isfinite(value):
            return
        if self.smallest is None or value < self.smallest:
            self.smallest, self.smallest_step = value, step
        if self.largest is None or value > self.largest:
            self.largest, self.largest_step = value, step


@dataclass
class OptimizerCurves:
    """What was measured of the steps of one optimizer."""

    loss: Series = field(default_factory=Series)
    gradient_norm: Series = field(default_factory=Series)
    loss_extremes: Extremes = field(default_factory=Extremes)
    norm_extremes: Extremes = field(default_factory=Extremes)
    loss_of: str = ""
    """How the losses of several backwards are combined: `mean` or `sum`; empty where a step has one backward."""
    models: str = ""
    """The models whose parameters the optimizer owns, or owned as long as they were listed; empty while unknown."""
    only_model: int | None = None
    """The number of the model, if there is only one."""
    former: dict[int, None] = field(default_factory=dict)
    """Indexes of other optimizers of the same parameters or models whose steps these are too, most of which are gone: the
    newest ones, in order."""
    former_steps: int = 0
    """Steps of the others that `former` no longer has."""


@dataclass
class StepsSince:
    """The measured steps of an optimizer since the newest one of the main optimizer."""

    first: int
    newest: int = 0
    count: int = 0


@dataclass
class FormerMain:
    """What the summary says of an optimizer that was the main one, in case it steps again."""

    since: int
    """As `RunState.main_since`."""
    norm_summary: NormSummary


@dataclass
class MainChanges:
    """What decides whether another optimizer becomes the main one. The optimizers are known by their indexes."""

    newest: int = 0
    """The newest measured step of the main optimizer."""
    others: dict[int, StepsSince] = field(default_factory=dict)
    """The measured steps of other optimizers since that one."""
    former: dict[int, FormerMain] = field(default_factory=dict)
    """The optimizers that were the main one before, in order."""
    in_turns: set[int] = field(default_factory=set)
    """Optimizers that never become the main one again: they take turns with it."""


@dataclass(frozen=True)
class HighestTotal:
    """The highest known total of some steps, in bytes."""

    bytes: int
    step: int
    phase: Phase | None
    """None if it is of one of several steps, of which only the last was read."""
    bound: Bound
    since: int = 0
    """The first of these steps."""


@dataclass
class StepMemoryCurves:
    """Memory totals over steps, in bytes."""

    newest: ev.StepTotals | None = None
    peak: Series = field(default_factory=Series)
    """The highest known total of each step."""
    peaks_exact: bool = True
    """Whether the allocator has kept the peak of each of these steps. Otherwise the peak of the run is a lower bound."""
    highest: HighestTotal | None = None
    """Of the steps since the newest change, as soon as one of them is measured; before that, of those before it."""
    devices: tuple[DeviceMemory, ...] = ()
    """Each device, if the models are on several: its newest total, and its highest peak of the run. Empty for one device."""
    highest_unread: HighestTotal | None = None
    """The highest peak of the run that may be of a step that was not read."""
    spikes: list[ev.MemorySpikeFound] = field(default_factory=list)
    """The newest steps whose peak was far above those around them."""
    spike_count: int = 0
    has_gaps: bool = False
    """Whether steps between others were not measured, which may have had spikes too."""
