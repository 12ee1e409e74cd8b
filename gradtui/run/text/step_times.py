"""Where the time of the training loop goes, in words. Pure."""

from __future__ import annotations

from gradtui.protocol.step_times import LoaderSettings, StepPart
from gradtui.protocol.summary_time import StepTime
from gradtui.run.state.ranks.slow_rank import slow_rank
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.small_operations import small_operations
from gradtui.run.state.time.step_shares import STANDS_OUT, PartShare, StepShares, step_shares
from gradtui.run.text.small_operations import small_verdict
from gradtui.run.text.units import duration_text, plural, share_words

PART_WORDS = {
    StepPart.WAIT: "data wait",
    StepPart.PREPARE: "batch to forward",
    StepPart.FORWARD: "forward",
    StepPart.BACKWARD: "backward",
    StepPart.OPTIMIZER: "optimizer",
    StepPart.EVALUATION: "evaluation",
    StepPart.SAVING: "saving",
    StepPart.OTHER: "own code",
}
"""What each part is called on the screen and in texts."""

_FEW = 4
"""How many times as many cores as threads are worth a word."""
_OF_OPERATIONS = (StepPart.FORWARD, StepPart.PREPARE, StepPart.OTHER)
"""Parts whose time may be that of many small operations."""


def time_verdict(state: RunState) -> str:
    """Return what most of the loop's time goes to, in one clause; empty if nothing stands out."""
    slow = slow_rank(state)
    if slow is not None:
        wait = f"{share_words(slow.share)} of each step, for {PART_WORDS[slow.part]}"
        return f"rank {slow.rank} makes the others wait: {wait}"
    shares, small, load = step_shares(state.step_times), small_operations(state), state.device_load
    most = shares.verdict if shares is not None else None
    if shares is None or (most is not None and most.part not in _OF_OPERATIONS):
        return _part_verdict(state, most) if most is not None else ""
    if small is not None and (small.waits_stand_out or small.stand_out):
        return small_verdict(small)
    if small is not None and small.between >= STANDS_OUT[StepPart.OTHER]:
        return f"{share_words(small.between)} of the loop is the script's own code between operations of the forward"
    computes = f"forward and backward take {share_words(shares.of(StepPart.FORWARD, StepPart.BACKWARD))} of the loop"
    if load.waits_for_host and (most is None or most.part is StepPart.FORWARD):
        idle = f"is idle {share_words(load.idle)} of the time" if load.idle is not None else "waits for the host"
        return f"host-bound: the device {idle}; {computes} on the host"
    if load.waits_for_host is False and most is not None:
        busy = f"computes {share_words(1 - load.idle)} of the time" if load.idle is not None else "never waits"
        return f"compute-bound: the device {busy}"
    if most is None:
        return ""
    return (
        f"compute-bound: {computes}{_few_threads(state)}"
        if most.part is StepPart.FORWARD
        else _part_verdict(state, most)
    )


def _part_verdict(state: RunState, most: PartShare) -> str:
    share = share_words(most.share)
    loader = state.step_times.loader if state.step_times is not None else None
    return {
        StepPart.WAIT: f"input-bound: {share} of the loop waits for {loader_words(loader)}",
        StepPart.PREPARE: f"input-bound: {share} of the loop prepares batches, after they are loaded",
        StepPart.OPTIMIZER: f"optimizer-bound: {share} of the loop is optimizer steps",
        StepPart.EVALUATION: f"evaluation takes {share} of the loop",
        StepPart.SAVING: f"saving takes {share} of the loop",
        StepPart.OTHER: f"{share} of the loop is the script's own code between the phases",
    }[most.part]


def _few_threads(state: RunState) -> str:
    """Return that torch leaves most cores alone, where it does and the model is on the CPU."""
    host, threads = state.device_load.host, state.step_times.threads if state.step_times is not None else None
    is_on_device = state.device is not None and state.device.index is not None
    if host is None or threads is None or is_on_device or host.cores < _FEW * threads:
        return ""
    return f", on {plural(threads, 'thread')} of {host.cores} cores"


def loader_words(loader: LoaderSettings | None) -> str:
    """Return what yields the batches, with its number of workers."""
    return f"the DataLoader (num_workers={loader.workers})" if loader is not None else "the DataLoader"


def time_row(state: RunState) -> str:
    """Return the verdict and the share of each part, in one clause; empty before ten steps."""
    shares = step_shares(state.step_times)
    if shares is None:
        return ""
    parts = ", ".join(f"{PART_WORDS[each.part]} {share_words(each.share)}" for each in _largest_first(shares))
    verdict = time_verdict(state)
    return f"{verdict}; {parts}" if verdict else parts


def time_lines(time: StepTime | None) -> list[str]:
    """Return the parts as lines: share, seconds, and the median and 95th percentile of a step."""
    if time is None:
        return []
    lines = [loop_words(time)]
    for part, share, seconds, median, p95 in time_rows(time):
        line = f"{part:<16} {share:>6}  {seconds:>8}"
        lines.append(f"{line}  median {median}, 95 % within {p95} a step" if median else line)
    return lines


def loop_words(time: StepTime) -> str:
    """Return how long the loop took, and in how many steps."""
    took = f"{duration_text(time.seconds or 0.0)} in {time.steps:,} steps after the first"
    return f"the loop took {took}, and gradtui {duration_text(time.gradtui_seconds or 0.0)}"


def time_rows(time: StepTime) -> list[tuple[str, str, str, str, str]]:
    """Return for each part its name, share and seconds, and the median and 95th percentile of a step where they are known."""
    rows = []
    for name, each in time.parts.items():
        median, p95 = each.median_seconds, each.p95_seconds
        times = ("", "") if median is None or p95 is None else (duration_text(median), duration_text(p95))
        seconds = duration_text(each.seconds or 0.0)
        rows.append((PART_WORDS[StepPart(name)], share_words(each.share), seconds, *times))
    return rows


def _largest_first(shares: StepShares) -> list[PartShare]:
    return sorted((each for each in shares.parts if each.share >= 0.005), key=lambda each: -each.share)
