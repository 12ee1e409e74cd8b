"""Memory over steps, for the curves of it: the totals at the ends of phases or of the step, and the peak of the step. Pure.

Bytes that no category explains before the first forward are subtracted, as everywhere on the screen (`run_memory.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.memory.step_curve import PHASES_OF_STEP
from gradtui.run.state.run_state import RunState

PEAK, TOTAL = "peak", "total"


@dataclass(frozen=True)
class MemoryCurve:
    """Bytes by step: `values[i]` of step `steps[i]`. A long run keeps some of its steps (`Series`)."""

    name: str
    """`PEAK`; `TOTAL` for what is held when the step has ended; else the phase at whose end the bytes are held."""
    phase: Phase | None
    """The phase at whose end the bytes are held; None for the peak."""
    steps: Sequence[int]
    values: Sequence[int]


def memory_over_steps(state: RunState, phases: Sequence[Phase] = ()) -> list[MemoryCurve]:
    """Return the peak of each step, and the totals at the ends of these phases: without phases, at the end of the step.

    The peak is the last curve. Curves without a measured step are left out. Where no allocator keeps a peak
    (`StepMemoryCurves.peaks_exact`), it is the highest of the totals.
    """
    before = state.held_since_load or 0
    ends = [(phase.value, phase) for phase in phases] or _step_end(state)
    curves = [(name, phase, state.phases[phase].totals) for name, phase in ends]
    return [
        MemoryCurve(name, phase, series.steps, [max(0, round(value) - before) for value in series.values])
        for name, phase, series in [*curves, (PEAK, None, state.step_memory.peak)]
        if len(series)
    ]


def _step_end(state: RunState) -> list[tuple[str, Phase]]:
    """Return the last phase of a step that is measured: a script without an optimizer of torch has no optimizer phase."""
    measured = [phase for phase in PHASES_OF_STEP if len(state.phases[phase].totals)]
    return [(TOTAL, measured[-1])] if measured else []
