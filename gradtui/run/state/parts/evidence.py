"""What was found because a rule needs it: by the probe, and in the script's seldom calls and its clipping."""

from __future__ import annotations

from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol import events as ev


@dataclass
class Evidence:
    """Only rules read this."""

    own_writes: ev.OwnForwardWrites | None = None
    """The newest event about frozen tensors that their own forward writes."""
    masked_rows: dict[str, ev.RowsMasked] = field(default_factory=dict)
    """The newest event of each parameter with rows that get no gradient."""
    averaged: dict[int, ev.AveragedCopyCompared] = field(default_factory=dict)
    """The newest comparison of each averaged copy, by the index of its module."""
    zero_derivatives: ev.ZeroDerivativesFound | None = None
    """The newest event about operations with a derivative of zero."""
    unfit_loss_inputs: ev.UnfitLossInputs | None = None
    """The newest event about losses that get values of another kind than they expect."""
    mixed_axes: ev.AxesMixed | None = None
    """The newest event about views that stand where a permutation is meant."""
    unregistered_tensors: ev.UnregisteredTensorsFound | None = None
    """The newest event about tensors that get gradients without being in a model or in an optimizer."""
    kept_tensors: ev.KeptTensorsFound | None = None
    """The newest event about tensors whose number grows with the steps."""
    graph_holder: ev.GraphHolderFound | None = None
    """The newest event about what holds graphs that are alive though no backward of the step reached them."""
    retained_graph: ev.GraphRetained | None = None
    """The newest event about graphs that were retained for a backward that never came."""
    recomputation: ev.RecomputationDiffers | None = None
    """The newest event about checkpoints of the script that do not recompute what forward did."""
    flags: ev.FlagsFound | None = None
    """The newest event about flags of modules and parameters that torch does not read."""
    unlisted_tensors: dict[int, int] = field(default_factory=dict)
    """By index of the optimizer: the number of its tensors in no module that get new gradients."""
    copied_models: set[int] = field(default_factory=set)
    """The numbers of models that are copies of others (`ModelCopied`)."""


@dataclass
class ZeroedSteps:
    """Steps whose finite gradients clipping multiplied by 0, because their norm overflowed."""

    count: int = 0
    clipped: int = 0
    """All steps whose norm before clipping was read."""
    first_step: int = 0
    last_step: int = 0


@dataclass
class ScriptCalls:
    """The newest event about each call."""

    loads: dict[int, ev.StateLoaded] = field(default_factory=dict)
    """By number of the call."""
    aliased: dict[tuple[str, int], ev.StateAliased] = field(default_factory=dict)
    """By what happened, and the step after which the state was made."""
    misplaced: dict[int, ev.OptimizerStateMisplaced] = field(default_factory=dict)
    """By index of the optimizer."""
    remade: dict[str, ev.OptimizersRemade] = field(default_factory=dict)
    """By type of the optimizer."""
    missed: dict[tuple[str, int], ev.ScheduleMisses] = field(default_factory=dict)
    """By type of the scheduler and index of its optimizer."""
    over: dict[tuple[str, int], ev.ScheduleOver] = field(default_factory=dict)
    """The same."""
    squared: dict[int, ev.RateIsFactor] = field(default_factory=dict)
    """By index of the optimizer."""
    clipping: ev.ClippingMeasured | None = None
    zeroed: ZeroedSteps = field(default_factory=ZeroedSteps)

    def take_clipped(self, step: int, before: float, applied: float | None) -> None:
        """Add a step whose norm was read before it was clipped."""
        self.zeroed.clipped += 1
        # An element that is not finite would have become NaN: Inf times 0.
        if before == float("inf") and applied == 0:
            self.zeroed.count += 1
            self.zeroed.first_step = self.zeroed.first_step or step
            self.zeroed.last_step = step
