"""Values of gradients: norms, statistics, histograms and non-finite numbers.

This package owns the sampling of gradient norms and the handling of clipping, loss scaling and gradient accumulation.

From a gradient to the panel: before a step `buffered_readings.py` reads the norms of dense gradients on the CPU by one
multi-tensor norm. For gradients on a device, sparse or distributed ones `grad_norms.py` starts an asynchronous copy, which
the next boundary polls. `norm_range.py` computes norms again that float32 cannot hold. `latest_norms.py` keeps them until
`ProbeParts.flush` emits `StepsMeasured` (loss and total of each step) and `GradientsMeasured` (all parameters, at most every
20 ms). The total follows from the norms of the parameters: alone it would cost as much. Norms before clipping come from
torch's clipping functions (`clipping.py`).

A spike of the loss or of the norm: `spikes.py`, by the rule of `spike_fence.py`.

To the first NaN: `nonfinite.py` decides in which phase it came. `nonfinite_forward.py` searches the graph of a loss,
`nonfinite_backward.py` the one whose gradients were not finite; `newest_backward.py` holds its loss. `nonfinite_values.py`
reads what an operation made NaN of, and `nonfinite_path.py` follows that to the loss.
"""

from gradtui.probe.gradients import clipping, rounded_updates
from gradtui.probe.gradients.buffered_readings import BufferedReadings
from gradtui.probe.gradients.clip_effects import ClipEffects
from gradtui.probe.gradients.found_batches import FoundBatch, FoundBatches
from gradtui.probe.gradients.grad_norm_collector import GradNormCollector
from gradtui.probe.gradients.grad_norms import GradNormSample, norm_of
from gradtui.probe.gradients.grad_scalers import GradScalers
from gradtui.probe.gradients.nonfinite import NonFiniteDetector
from gradtui.probe.gradients.spikes import SpikeDetector

__all__ = [
    "BufferedReadings",
    "ClipEffects",
    "FoundBatch",
    "FoundBatches",
    "GradNormCollector",
    "GradNormSample",
    "GradScalers",
    "NonFiniteDetector",
    "SpikeDetector",
    "clipping",
    "norm_of",
    "rounded_updates",
]
