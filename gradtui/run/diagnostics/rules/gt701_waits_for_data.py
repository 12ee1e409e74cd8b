"""GT701: the loop waits for the DataLoader."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.step_times import LoaderSettings, StepPart
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.step_parts import LongPart, long_part, needs_steps
from gradtui.run.state.findings import EvidenceValue, Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.step_times import loader_words
from gradtui.run.text.units import duration_text, plural

_RARE = 4
"""Some batches are late, and most are not, if the 95th percentile of the wait is at least this many times the mean, or the mean
this many times the median."""

_SEVERAL = 1.5
"""Backwards for each step from which a step has the gradients of several batches: the newest step may not have ended."""


def check(state: RunState) -> Iterator[Match]:
    """Match a loop that waits for batches most of the time."""
    loader = state.step_times.loader if state.step_times is not None else None
    for part in long_part(state, StepPart.WAIT):
        evidence: dict[str, EvidenceValue] = dict(part.evidence)
        if loader is not None:
            evidence["num_workers"] = loader.workers
        yield Match(
            f"{part.words} is spent waiting for {loader_words(loader)}: {_batch_words(state, part, loader)}",
            evidence,
            is_exact=part.is_exact,
            remedy=_remedy(part, loader),
        )


def _batch_words(state: RunState, part: LongPart, loader: LoaderSettings | None) -> str:
    median, p95 = part.share.measured.median, part.share.measured.p95
    if median is not None and p95 is not None and p95 > _RARE * part.a_step:
        return f"most batches come within {duration_text(median)}, and some take {duration_text(p95)} or more"
    if p95 is not None and _waits_rarely(part):
        return f"most batches come within {duration_text(p95)}, and a few take far longer"
    if state.micro_steps > _SEVERAL * state.step:
        return f"the batches of a step take {duration_text(part.a_step)}"
    words = f"a batch takes {duration_text(part.a_step)}"
    if loader is not None and not loader.workers and loader.batch_size:
        size = plural(loader.batch_size, "sample")
        words += f", so one of its {size} about {duration_text(part.a_step / loader.batch_size)}"
    return words


def _remedy(part: LongPart, loader: LoaderSettings | None) -> str | None:
    if loader is None or not loader.workers:
        return None
    needed = f"more than the {plural(loader.workers, 'worker')}, or less work for each sample"
    persists = "" if loader.is_persistent else "; persistent_workers=True keeps workers between epochs"
    evens = "; a larger prefetch_factor evens out slow samples" if _waits_rarely(part) else ""
    return f"give the DataLoader {needed}{persists}{evens}"


def _waits_rarely(part: LongPart) -> bool:
    """Return whether most batches are there in time, and some make the loop wait long."""
    median, p95 = part.share.measured.median, part.share.measured.p95
    return (p95 is not None and p95 > _RARE * part.a_step) or (median is not None and _RARE * median < part.a_step)


RULE = Rule(
    "GT701",
    Level.WARNING,
    "the loop waits for data",
    "while it waits, the model computes nothing: more compute, or freezing layers, cannot make the training faster",
    "load batches in worker processes (num_workers), or do less work for each sample",
    check,
    needs=needs_steps,
)
