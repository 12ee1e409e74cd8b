"""How much the steps of a run process in a second, from its state. Pure."""

from __future__ import annotations

from gradtui.run.state.parts.throughput import Throughput, throughput
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.step_shares import step_shares


def throughput_now(state: RunState) -> Throughput | None:
    """Return what the run processes lately, evaluations and saves included, and pauses not. None before the first steps."""
    return _of(state, state.steps_per_second, lately=True)


def mean_throughput(state: RunState) -> Throughput | None:
    """Return what the run has processed on average since its first step, without gradtui's time; None before ten steps."""
    shares = step_shares(state.step_times)
    return _of(state, shares.steps / shares.seconds, lately=False) if shares is not None else None


def slowdown(state: RunState) -> float | None:
    """Return how much longer the newest steps take than the first ones: 0.1 is a tenth. None before four of each."""
    times = state.step_times
    if times is None or not times.early_step or times.late_step is None:
        return None
    return times.late_step / times.early_step - 1


def _of(state: RunState, steps_per_second: float | None, *, lately: bool) -> Throughput | None:
    operations = state.operations
    # Of optimizers that take turns, one step is recorded.
    is_of_all = operations is not None and state.iterations is None and state.changed_after < operations.step
    is_on_one = state.device is None or not state.device.others
    device = state.started.device if state.started is not None and is_on_one else ""
    work, samples = operations if is_of_all else None, state.throughput.samples
    known = samples if samples is not None and samples.samples else None
    return throughput(steps_per_second, known, work, device, counted=state.counted, lately=lately)
