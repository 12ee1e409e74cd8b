"""How much the steps of training process in a second. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol import events as ev
from gradtui.run.state.parts.bounds import Bound
from gradtui.run.state.parts.peak_flops import peak_flops
from gradtui.run.state.series import Series


@dataclass
class StepWork:
    """How fast the steps are, and the newest events about what they process; None before the first."""

    samples: ev.SamplesMeasured | None = None
    length: ev.RunLengthFound | None = None
    rates: Series = field(default_factory=Series)
    """Steps per second since the value before it, by the last of these steps."""


@dataclass(frozen=True)
class Throughput:
    """What the steps of a process need and do in a second. None is unknown."""

    steps: float
    samples: float | None = None
    samples_bound: Bound = "exact"
    """"about" where sampled steps stand for all."""
    tokens: float | None = None
    tokens_bound: Bound = "exact"
    flops: float | None = None
    """Floating-point operations of forward and backward (see `gradtui/probe/autograd/operation_flops.py`)."""
    flops_a_step: Mapping[str, int] = field(default_factory=dict)
    """Those of a step, by dtype."""
    flops_bound: Bound = "exact"
    share_of_peak: float | None = None
    """Model FLOPs utilisation: `flops` as a share of the peak rate of the device, 0 to 1. Where products have several dtypes it
    is the share of the time that they would take at their peaks. What a checkpoint computes a second time does not count
    (Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", 2022, appendix B)."""


def throughput(
    steps_per_second: float | None,
    samples: ev.SamplesMeasured | None,
    operations: ev.OperationsRecorded | None = None,
    device: str = "",
    *,
    counted: ev.OperationsCounted | None = None,
    lately: bool = True,
) -> Throughput | None:
    """Return what steps at this rate process; None if the rate is unknown.

    Args:
        steps_per_second: the rate.
        samples: the samples of the steps.
        operations: the newest recorded step, if its operations stand for those of all.
        device: the name of the device that computes them.
        counted: the calls of models in a few steps. Where a step makes more of them than the recorded one, as with an episode
            of reinforcement learning, it has as many times its floating-point operations.
        lately: whether the samples of the newest steps count, rather than those of all steps.
    """
    if not steps_per_second:
        return None
    a_step = tokens = None
    if samples is not None:
        a_step = (
            samples.recent_samples / samples.recent_steps
            if lately and samples.recent_steps
            else samples.samples / samples.steps
        )
        tokens = a_step * samples.tokens_a_sample if samples.tokens_a_sample is not None else None
    has_one_size = samples is None or samples.has_one_size
    is_counted = samples is None or samples.is_counted
    of_all: Bound = "exact" if has_one_size else "about"
    ratio = _calls_ratio(operations, counted)
    flops = {dtype: round(count * ratio) for dtype, count in operations.flops} if operations is not None else {}
    flops_bound: Bound = of_all if ratio == 1 else "about"
    whole, share = sum(flops.values()), _seconds_at_peak(flops, device)
    return Throughput(
        steps_per_second,
        steps_per_second * a_step if a_step is not None else None,
        "exact" if is_counted else of_all,
        steps_per_second * tokens if tokens is not None else None,
        of_all,
        steps_per_second * whole if whole else None,
        flops,
        "at least" if operations is not None and operations.has_more_flops else flops_bound,
        steps_per_second * share if share is not None else None,
    )


def _calls_ratio(operations: ev.OperationsRecorded | None, counted: ev.OperationsCounted | None) -> float:
    """Return how many times the calls of models of the recorded step a step makes; 1 where that is unknown."""
    if operations is None or counted is None or not operations.calls_of_models or not counted.calls:
        return 1
    return counted.calls / counted.steps / operations.calls_of_models


def _seconds_at_peak(flops: dict[str, int], device: str) -> float | None:
    """Return the seconds that these operations take at the peak rate of a device; None if that is unknown."""
    seconds = 0.0
    for dtype, count in flops.items():
        peak = peak_flops(device, dtype)
        if peak is None:
            return None
        seconds += count / peak
    return seconds or None
