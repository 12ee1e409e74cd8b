"""Say what a try has measured. Pure."""

from __future__ import annotations

import statistics

from gradtui.protocol.tries import ChangeTried, TriedSide, TrySideBegan
from gradtui.run.state.parts.paired import PairedDifference
from gradtui.run.state.parts.tries import (
    TryProgress,
    aside_differences,
    is_peak_noise,
    loss_differences,
    time_differences,
)
from gradtui.run.text.units import duration_text, number_text, plural, size_text

WITHOUT = "without a change"
NOT_BEGUN = "not begun"


def side_name(side: TriedSide) -> str:
    """Return the change of a side; `without a change` if it has none."""
    return side.change or WITHOUT


def side_text(event: TrySideBegan) -> str:
    """Say that a side begins."""
    return (
        f"a try: side {event.side + 1} of {event.sides}, {event.change or WITHOUT}, {plural(event.steps, 'step')} on the same "
        f"batches"
    )


def progress_text(progress: TryProgress) -> str:
    """Say how far a try is: `side 2 of 3, step 12 of 50`."""
    if progress.asks:
        return "asks which side continues"
    return f"side {progress.side} of {progress.sides}, step {progress.step:,} of {progress.steps:,}"


def failure_text(why: str, step: int) -> str:
    """Say that an exception has ended a side in its step with this number."""
    return f"failed: {why}, step {step:,}"


def asks_text(tried: ChangeTried) -> str:
    """Say that the run waits for a choice."""
    return f"{'; '.join(tried_lines(tried))}; the run waits: gradtui do end-try 0, or the number of a change"


def tried_text(tried: ChangeTried, kept: int) -> str:
    """Return the result of a try in one line."""
    sides = tried.sides
    words = f"the run continues with {sides[kept].change}" if kept else "the run continues without it"
    if len(sides) > 2 and not kept:
        words = "the run continues without them"
    return "; ".join([*tried_lines(tried), *tried.notes, words])


def tried_lines(tried: ChangeTried) -> list[str]:
    """Return a line for each change."""
    sides = tried.sides
    return [
        _line(side, sides[0], *differences)
        for side, *differences in zip(
            sides[1:], loss_differences(sides), aside_differences(sides), time_differences(sides)
        )
    ]


def _line(
    side: TriedSide,
    without: TriedSide,
    loss: PairedDifference | None,
    aside: PairedDifference | None,
    time: PairedDifference | None,
) -> str:
    parts = [f"loss {loss_words(loss)}"]
    if aside is not None:
        parts.append(f"held-aside loss {loss_words(aside)} on {aside.pairs} batches")
    before, after = step_seconds(without), step_seconds(side)
    if before is not None and after is not None and time is not None:
        parts.append(f"step {duration_text(before)} → {duration_text(after)}{' (noise)' if time.is_noise else ''}")
    if peak := peak_words(side, without):
        parts.append(f"peak {peak}")
    if not side.losses:
        return f"tried {side.change}: {side.ended}"
    done = f"tried {side.change} on {plural(len(side.losses), 'batch').replace('batchs', 'batches')}: "
    ended = f"{'' if side.ended.startswith('failed') else 'ended: '}{side.ended}" if side.ended else ""
    return done + ", ".join([*([ended] if ended else []), *parts])


def peak_words(side: TriedSide, without: TriedSide) -> str:
    """Return by how much the peak of a side is higher; empty if that is unknown.

    On the CPU both peaks have what was in use before training, so neither says much by itself.
    """
    if without.peak is None or side.peak is None:
        return ""
    more = side.peak - without.peak
    return f"{'+' if more >= 0 else '−'}{size_text(abs(more))}{' (noise)' if is_peak_noise(side, without) else ''}"


def brief_result(text: str) -> str:
    """Return what the answer to a try says of the loss of its first change."""
    return text.partition(": ")[2].partition(", step ")[0].partition(";")[0]


def loss_words(loss: PairedDifference | None) -> str:
    """Return a difference of the loss with its interval: `+0.0123 ± 0.004`, and `noise` if the interval contains 0."""
    if loss is None:
        return "unknown"
    text = f"{'+' if loss.mean >= 0 else '−'}{number_text(abs(loss.mean)).strip()}"
    if loss.margin is None:
        return f"{text} of {plural(loss.pairs, 'batch').replace('batchs', 'batches')}: too few for an interval"
    text += f" ± {number_text(loss.margin).strip()}"
    return f"{text} (noise)" if loss.is_noise else text


def step_seconds(side: TriedSide) -> float | None:
    """Return the median of the seconds of a step, without the first one; None if there is no other."""
    return statistics.median(side.seconds[1:]) if len(side.seconds) > 1 else None
