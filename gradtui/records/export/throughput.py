"""The rates of a run as its summary has them."""

from __future__ import annotations

from gradtui.protocol import run_summary as rs
from gradtui.run.state.run_state import RunState
from gradtui.run.state.throughput_of_run import mean_throughput


def throughput(state: RunState) -> rs.Throughput | None:
    """Return what the steps did in a second; None before ten steps."""
    made, samples, times, operations = (
        mean_throughput(state), state.throughput.samples, state.step_times, state.operations,
    )  # fmt: skip
    if made is None or times is None:
        return None
    return rs.Throughput(
        steps_per_second=made.steps,
        samples_per_second=made.samples,
        samples_are_counted=samples.is_counted if samples is not None else None,
        samples_per_step=samples.samples / samples.steps if samples is not None else None,
        tokens_per_second=made.tokens,
        flops_per_second=made.flops,
        flops_bound=made.flops_bound if made.flops is not None else None,
        flops_per_step=dict(operations.flops) if operations is not None and made.flops is not None else {},
        share_of_peak=made.share_of_peak,
        first_step_seconds=times.early_step,
        newest_step_seconds=times.late_step,
    )
