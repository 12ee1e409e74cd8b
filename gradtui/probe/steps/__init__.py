"""The training step: its phases, its number and its timing.

This package owns the phase tracker, the step counter, the fast path of steps that are not sampled, and the detection of
evaluation and of epoch ends.
"""

from gradtui.probe.steps.call_order import CallOrder
from gradtui.probe.steps.device_times import DeviceTimes
from gradtui.probe.steps.epochs import Epochs
from gradtui.probe.steps.eval_detection import EvalDetector
from gradtui.probe.steps.event_replay import replay
from gradtui.probe.steps.hook_buffer import BACKWARD, DATA, FORWARD, STEP, ZERO_GRAD, HookEventBuffer
from gradtui.probe.steps.optimizer_step_stack import OptimizerStepStack
from gradtui.probe.steps.phase_tracker import PhaseTracker
from gradtui.probe.steps.step_counter import StepCounter

__all__ = [
    "BACKWARD",
    "DATA",
    "FORWARD",
    "STEP",
    "ZERO_GRAD",
    "CallOrder",
    "DeviceTimes",
    "Epochs",
    "EvalDetector",
    "HookEventBuffer",
    "OptimizerStepStack",
    "PhaseTracker",
    "StepCounter",
    "replay",
]
