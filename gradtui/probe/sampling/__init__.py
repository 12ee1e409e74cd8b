"""The sampled step.

This package owns what is measured in a sampled step and when, and from it derives the state of each parameter: trained, frozen
and why.
"""

from gradtui.probe.sampling.step_sampler import StepSampler

__all__ = [
    "StepSampler",
]
