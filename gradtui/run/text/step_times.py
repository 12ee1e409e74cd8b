"""Where the time of the training loop goes, in words. Pure."""

from __future__ import annotations

from gradtui.protocol.events import LoaderSettings
from gradtui.protocol.vocabulary import StepPart
from gradtui.run.state.run_state import RunState
from gradtui.run.state.step_shares import PartShare, StepShares, step_shares
from gradtui.run.text.units import duration_text, share_words

PART_WORDS = {
    StepPart.WAIT: "data wait",
    StepPart.PREPARE: "batch to forward",
    StepPart.FORWARD: "forward",
    StepPart.BACKWARD: "backward",
    StepPart.OPTIMIZER: "optimizer",
    StepPart.EVALUATION: "evaluation",
    StepPart.SAVING: "saving",
    StepPart.OTHER: "own code",
    StepPart.GRADTUI: "gradtui",
}
"""What each part is called on the screen and in texts."""


def time_verdict(state: RunState) -> str:
    """Return what most of the loop's time goes to, in one clause; empty if nothing stands out."""
    shares = step_shares(state.step_times)
    most = shares.verdict if shares is not None else None
    if shares is None or most is None:
        return ""
    if most.part is StepPart.FORWARD:
        share = share_words(shares.of(StepPart.FORWARD, StepPart.BACKWARD))
        return f"compute-bound: forward and backward take {share} of the loop"
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


def time_lines(state: RunState) -> list[str]:
    """Return the parts as lines: share, seconds, and the median and 95th percentile of a step."""
    shares = step_shares(state.step_times)
    if shares is None:
        return []
    lines = [f"the loop took {duration_text(shares.seconds)} in {shares.steps:,} steps after the first"]
    for each in shares.parts:
        line = f"{PART_WORDS[each.part]:<16} {share_words(each.share):>6}  {duration_text(each.seconds):>8}"
        if each.measured.median is not None and each.measured.p95 is not None:
            line += (
                f"  median {duration_text(each.measured.median)}, 95 % within {duration_text(each.measured.p95)} a step"
            )
        lines.append(line)
    return lines


def _largest_first(shares: StepShares) -> list[PartShare]:
    return sorted((each for each in shares.parts if each.share >= 0.005), key=lambda each: -each.share)
