"""Puts off the end of a forecast's run until its steps and modules were timed. Training thread only."""

from __future__ import annotations

from time import monotonic

from gradtui.probe.runtime import SamplingSchedule
from gradtui.probe.sampling import StepSampler
from gradtui.probe.steps import StepCounter, StepTimes

MAX_STEPS, MAX_SECONDS = 100, 60.0
"""The wait ends after so many steps, or so long after it began."""
_TIMED, _USUAL = 6, 16
"""Steps whose modules are timed, and steps that are not sampled, whose median is the time of a step. Neither the first step of
a run nor one whose memory is profiled is timed."""
_LONG_S, _FEW_TIMED, _FEW_USUAL = 10.0, 2, 4
"""Fewer do where the wait takes longer: other load shifts long steps less."""


class AwaitedTimes:
    """Decides at the boundary before the last step whether the run may end with it.

    Args:
        counter: of the run's steps.
        times: of the steps that are not sampled.
        sampling: the schedule of the sampled steps.
        sampler: times modules and records steps.
    """

    def __init__(
        self, counter: StepCounter, times: StepTimes, sampling: SamplingSchedule, sampler: StepSampler
    ) -> None:
        self._counter, self._times, self._sampling, self._sampler = counter, times, sampling, sampler
        self._begun: tuple[int, float] | None = None
        """The executed steps and the time at the first boundary before a last step."""
        self._is_over = False

    def look(self, executed: int) -> None:
        """Let the run continue after the next one of `executed` steps, or else record that step."""
        if self._is_over or not self._counter.is_last(executed):
            return
        if self._begun is None:
            self._begun = executed, monotonic()
        first, began = self._begun
        modules, waited = self._sampler.modules, monotonic() - began
        least, usual = (_TIMED, _USUAL) if waited < _LONG_S else (_FEW_TIMED, _FEW_USUAL)
        is_timed = modules.timed_steps >= least
        if is_timed:
            self._sampling.end_warmup()
        else:
            self._sampling.force(at_boundary=True)
        is_known = is_timed and self._times.kept_steps >= usual
        if is_known or modules.is_on_device or executed - first >= MAX_STEPS or waited >= MAX_SECONDS:
            self._is_over = True
            # If that is impossible, the step counts that was recorded before.
            self._sampler.trace_next(operations=True)
        else:
            self._counter.end_after(executed + 2)
