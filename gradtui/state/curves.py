"""Curves over steps: of the steps of each optimizer, and of the memory of each step."""

from __future__ import annotations

from dataclasses import dataclass, field

from gradtui.protocol import events as ev
from gradtui.state.series import Series


@dataclass
class OptimizerCurves:
    """What was measured of the steps of one optimizer."""

    loss: Series = field(default_factory=Series)
    gradient_norm: Series = field(default_factory=Series)
    loss_of: str = ""
    """How the losses of several backwards are combined: `mean` or `sum`; empty where a step has one backward."""
    models: str = ""
    """The models whose parameters the optimizer owns, or owned as long as they were listed; empty while unknown."""
    only_model: int | None = None
    """The number of the model, if there is only one."""
    former: set[int] = field(default_factory=set)
    """Indexes of the optimizers of the same models, by now gone, whose curves these were before."""


@dataclass
class StepMemoryCurves:
    """Memory totals over steps, in bytes."""

    newest: ev.StepTotals | None = None
    peak: Series = field(default_factory=Series)
    """The highest known total of each step."""
    exact: bool = True
    spikes: list[ev.MemorySpikeFound] = field(default_factory=list)
    """The newest steps whose peak was far above those around them."""
    spike_count: int = 0
