"""What the probe has found because a rule needs it: the newest event of each kind."""

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
    normalized_twice: ev.NormalizedTwice | None = None
    """The newest event about losses that apply softmax or sigmoid again."""
    unregistered_tensors: ev.UnregisteredTensorsFound | None = None
    """The newest event about tensors that get gradients without being in a model or in an optimizer."""
    kept_tensors: ev.KeptTensorsFound | None = None
    """The newest event about tensors whose number grows with the steps."""
    graph_holder: ev.GraphHolderFound | None = None
    """The newest event about what holds graphs that are alive though no backward of the step reached them."""
    recomputation: ev.RecomputationDiffers | None = None
    """The newest event about checkpoints of the script that do not recompute what forward did."""
    flags: ev.FlagsFound | None = None
    """The newest event about flags of modules and parameters that torch does not read."""
    unlisted_tensors: dict[int, int] = field(default_factory=dict)
    """By index of the optimizer: the number of its tensors in no module that get new gradients."""
    copied_models: set[int] = field(default_factory=set)
    """The numbers of models that are copies of others (`ModelCopied`)."""
