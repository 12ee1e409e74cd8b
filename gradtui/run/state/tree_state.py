"""The models of a run as they were listed last, with what was measured last of each parameter."""

from __future__ import annotations

from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol import events as ev
from gradtui.protocol.freezes import RowsInForce
from gradtui.protocol.measurements import GradientHistogram
from gradtui.protocol.vocabulary import BufferInfo, GradientStats, ModelInfo, ModuleInfo, ParameterInfo
from gradtui.run.state.series import RatioHistory


@dataclass
class Turn:
    """The last sampled step of one optimizer."""

    gradient_flow: ev.GradientFlowMeasured
    saved: ev.SavedBytesMeasured | None = None
    number: int = 0
    """Number of sampled steps up to and including this one."""


@dataclass
class TreeState:
    """The models of the run and the last measurements of each parameter. Every list is aligned with `parameters`."""

    models: tuple[ModelInfo, ...] = ()
    modules: tuple[ModuleInfo, ...] = ()
    parameters: tuple[ParameterInfo, ...] = ()
    buffers: tuple[BufferInfo, ...] = ()
    listing: int | None = 0
    """The number that the probe gave this list: 0 before the first list, None if it gave none."""
    is_sharded: bool = False
    """Whether any parameter is spread over several processes."""
    states: str = ""
    trainable: str = ""
    first_trainable: str = ""
    """`trainable` when it was first known of these models."""
    frozen_after: dict[int, int] = field(default_factory=dict)
    """By parameter that was frozen in training: the last step before that."""
    switches: dict[int, int] = field(default_factory=dict)
    """By parameter: how often sampled steps have found that the script had frozen or unfrozen it."""
    reasons: str = ""
    """A letter of `vocabulary.StateReason` per parameter; empty if the cause is unknown for all."""
    norms: tuple[float | None, ...] | None = None
    norms_step: int | None = None
    norm_steps: tuple[int | None, ...] | None = None
    """The step of each of `norms`; None where all are of `norms_step`."""
    gradient_figures: dict[int, tuple[int, GradientStats]] = field(default_factory=dict)
    """By parameter: the last step with statistics of its gradient, and the statistics."""
    gradient_figures_step: int = 0
    """The last step with statistics of any gradient; 0 before the first."""
    ratios: RatioHistory = field(default_factory=RatioHistory)
    """The update ratios of each parameter over the steps that measured them."""
    histograms: dict[int, tuple[int, GradientHistogram]] = field(default_factory=dict)
    """By parameter: the step and the newest histogram of its gradient, for the parameters watched last."""
    gradient_paths: dict[str, ev.GradientPathFound] = field(default_factory=dict)
    """By path: the path of the gradient to it, for the newest requests."""
    optimizer_state: dict[str, ev.OptimizerStateRead] = field(default_factory=dict)
    """By path: the size of its optimizer state, for the newest requests."""
    followed: set[str] = field(default_factory=set)
    """Paths with an unanswered request for the path of the gradient."""
    saved: ev.SavedBytesMeasured | None = None
    """The last measurement of each model, which may be from another optimizer's step (see `turns`)."""
    times: ev.ModuleTimesMeasured | None = None
    """The time of each module in a step."""
    gradient_flow: ev.GradientFlowMeasured | None = None
    """How far the gradient comes, combined like `saved`."""
    steps: tuple[int, ...] = ()
    """Per model: the step of its values in `saved` and `reach`."""
    evaluated: dict[int, int] = field(default_factory=dict)
    """By number of a model without a sampled step: the step after which it was evaluated last."""
    turns: dict[int, Turn] = field(default_factory=dict)
    """By index of the optimizer, the newest last."""
    measured: int = 0
    """Number of sampled steps that `turns` has received."""
    freezes: ev.FreezeStateChanged | None = None
    """The freezes of commands; None if there are none."""
    frozen_rows: dict[int, RowsInForce] = field(default_factory=dict)
    """By index of the parameter: the rows of it that commands have frozen."""
    checkpointed: frozenset[int] = frozenset()
    """Indexes of the modules that commands have checkpointed."""
    compiled: frozenset[int] = frozenset()
    """Indexes of the modules that run in compiled code, with all modules in them."""
    version: int = 0
    """Grows when a new list of models replaces the structure."""
