"""The sampled step: what gradtui measures in a few steps, and when.

This package decides which steps are sampled and what is measured in them. From the measurements it derives the state of each
parameter: whether it trains or is frozen, and why. It also measures what all ranks of a job must have in common.
"""

from gradtui.probe.sampling.batch_sizes import BatchSizes
from gradtui.probe.sampling.first_sample import Extent
from gradtui.probe.sampling.operation_count import OperationCount
from gradtui.probe.sampling.process_group import ProcessGroupWatch
from gradtui.probe.sampling.replicas import ReplicaChecks
from gradtui.probe.sampling.step_sampler import StepSampler

__all__ = [
    "BatchSizes",
    "Extent",
    "OperationCount",
    "ProcessGroupWatch",
    "ReplicaChecks",
    "StepSampler",
]
