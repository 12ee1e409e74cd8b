"""The autograd graph of a sampled step.

This package owns the walk over the graph, saved tensors by module, the parameters that a backward reaches, the path of a
gradient from the loss to a module, and the record of a forward's operations.
"""

from gradtui.probe.autograd import recomputation
from gradtui.probe.autograd.gradient_flow import (
    FlowThrough,
    GraphsOfStep,
    grad_mode_letters,
    gradient_bytes,
    reach_letters,
    training_flags,
)
from gradtui.probe.autograd.gradient_path import Target, find_gradient_path
from gradtui.probe.autograd.graph_summary import NOTHING_KEPT, GraphSummary, KnownTensors, Part
from gradtui.probe.autograd.loss_inputs import unfit_loss_inputs
from gradtui.probe.autograd.mixed_axes import mixed_axes
from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog, ModuleCallLogger, grad_mode
from gradtui.probe.autograd.module_outputs import ModuleOutputs
from gradtui.probe.autograd.operation_flops import Flops, flops_of
from gradtui.probe.autograd.operation_log import OperationLog
from gradtui.probe.autograd.operation_record import OperationRecord
from gradtui.probe.autograd.parameter_use import NewestUse, ParameterUse
from gradtui.probe.autograd.recomputation import Recomputation
from gradtui.probe.autograd.saved_owners import SavedOwners
from gradtui.probe.autograd.saved_tensors import walk
from gradtui.probe.autograd.stretch_starts import StretchStarts
from gradtui.probe.autograd.zero_derivatives import zero_derivatives

__all__ = [
    "NOTHING_KEPT",
    "OUTSIDE",
    "Flops",
    "FlowThrough",
    "GraphSummary",
    "GraphsOfStep",
    "KnownTensors",
    "ModuleCallLog",
    "ModuleCallLogger",
    "ModuleOutputs",
    "NewestUse",
    "OperationLog",
    "OperationRecord",
    "ParameterUse",
    "Part",
    "Recomputation",
    "SavedOwners",
    "StretchStarts",
    "Target",
    "find_gradient_path",
    "flops_of",
    "grad_mode",
    "grad_mode_letters",
    "gradient_bytes",
    "mixed_axes",
    "reach_letters",
    "recomputation",
    "training_flags",
    "unfit_loss_inputs",
    "walk",
    "zero_derivatives",
]
