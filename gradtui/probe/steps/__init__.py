"""The training step: its phases, its number and its timing.

This package owns what the parts of a probe have in common (`ProbeContext`), the phase tracker, the step counter, the fast path
of steps that are not sampled, what CUDA graphs repeat, and the detection of evaluation and of epoch ends.
"""

from gradtui.probe.steps.batch_indices import BatchPlace
from gradtui.probe.steps.call_order import CallOrder
from gradtui.probe.steps.captured_work import CapturedWork, CudaGraphs
from gradtui.probe.steps.device_times import DeviceTimes
from gradtui.probe.steps.epochs import Epochs
from gradtui.probe.steps.eval_detection import EvalDetector
from gradtui.probe.steps.event_replay import replay
from gradtui.probe.steps.hook_buffer import BACKWARD, DATA, FORWARD, LOADER, STEP, ZERO_GRAD, HookEventBuffer
from gradtui.probe.steps.optimizer_step_stack import OptimizerStepStack
from gradtui.probe.steps.phase_tracker import PhaseTracker
from gradtui.probe.steps.probe_context import ProbeContext
from gradtui.probe.steps.step_counter import StepCounter
from gradtui.probe.steps.step_times import StepTimes

__all__ = [
    "BACKWARD",
    "DATA",
    "FORWARD",
    "LOADER",
    "STEP",
    "ZERO_GRAD",
    "BatchPlace",
    "CallOrder",
    "CapturedWork",
    "CudaGraphs",
    "DeviceTimes",
    "Epochs",
    "EvalDetector",
    "HookEventBuffer",
    "OptimizerStepStack",
    "PhaseTracker",
    "ProbeContext",
    "StepCounter",
    "StepTimes",
    "replay",
]
