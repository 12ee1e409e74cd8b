"""Where the time of a run went, what it processed in it, and the load of the machine, as the summary has them. Pure."""

from __future__ import annotations

from gradtui.protocol.summary_time import DeviceLoad, StepPartTime, StepTime, Throughput
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.module_times import module_timing
from gradtui.run.state.time.step_shares import step_shares
from gradtui.run.state.time.throughput_of_run import mean_throughput
from gradtui.run.text.device_load import cores_words, load_words
from gradtui.run.text.step_times import time_verdict
from gradtui.run.text.throughput import mean_words


def step_time(state: RunState) -> StepTime | None:
    """Return where the time of the loop went; None before ten steps."""
    shares, times = step_shares(state.step_times), state.step_times
    if shares is None or times is None:
        return None
    parts = {
        each.part.value: StepPartTime(each.seconds, each.share, each.measured.median, each.measured.p95)
        for each in shares.parts
    }
    workers = times.loader.workers if times.loader is not None else None
    modules = module_timing(state.tree)
    return StepTime(shares.seconds, shares.own_seconds, shares.steps, time_verdict(state), parts, workers, modules)


def throughput(state: RunState) -> Throughput | None:
    """Return what the steps did in a second; None before ten steps."""
    made, samples, times = mean_throughput(state), state.throughput.samples, state.step_times
    if made is None or times is None:
        return None
    return Throughput(
        steps_per_second=made.steps,
        samples_per_second=made.samples,
        samples_are_counted=samples.is_counted if samples is not None and samples.samples else None,
        samples_per_step=samples.samples / samples.steps if samples is not None and samples.samples else None,
        tokens_per_second=made.tokens,
        flops_per_second=made.flops,
        flops_bound=made.flops_bound if made.flops is not None else None,
        flops_per_step=dict(made.flops_a_step),
        share_of_peak=made.share_of_peak,
        first_step_seconds=times.early_step,
        newest_step_seconds=times.late_step,
        in_words=mean_words(state),
    )


def device_load(state: RunState) -> DeviceLoad | None:
    """Return how the device and the host were; None if nothing was read while the run trained."""
    load, times = state.device_load, state.step_times
    if not load.seconds and load.host is None:
        return None
    return DeviceLoad(
        1 - load.idle if load.idle is not None else None,
        load.hottest,
        load.power.value,
        {reason.value: seconds for reason, seconds in load.throttled.items()},
        load.cores_used.value,
        load.host.cores if load.host is not None else None,
        times.threads if times is not None else None,
        load_words(load),
        cores_words(state),
    )
