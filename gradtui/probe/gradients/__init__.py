"""Values of gradients: norms, statistics, histograms and non-finite numbers.

This package owns the sampling of gradient norms and the handling of clipping, loss scaling and gradient accumulation.
"""

from gradtui.probe.gradients import clipping, rounded_updates
from gradtui.probe.gradients.buffered_readings import BufferedReadings
from gradtui.probe.gradients.grad_norm_collector import GradNormCollector
from gradtui.probe.gradients.grad_norms import GradNormSample, norm_of
from gradtui.probe.gradients.grad_scalers import GradScalers
from gradtui.probe.gradients.nonfinite import NonFiniteDetector

__all__ = [
    "BufferedReadings",
    "GradNormCollector",
    "GradNormSample",
    "GradScalers",
    "NonFiniteDetector",
    "clipping",
    "norm_of",
    "rounded_updates",
]
