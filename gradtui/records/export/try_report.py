"""The report of `gradtui try` as JSON and as text. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from gradtui.protocol.tries import ChangeTried, TriedSide
from gradtui.run.state.parts.paired import PairedDifference
from gradtui.run.state.parts.tries import aside_differences, loss_differences, on_front, time_differences
from gradtui.run.text.tries import loss_words, peak_words, side_name, step_seconds
from gradtui.run.text.units import DASH, duration_text, number_text, plural

_FRONT = "●"
_MEANING = (
    f"({_FRONT}: no other side is better in loss, time or memory and as good in the others. Noise counts as equal.)"
)


def try_lines(tried: ChangeTried) -> list[str]:
    """Return a table with a row for each side, the first one without a change."""
    sides, front = tried.sides, on_front(tried.sides)
    rows: list[tuple[str, ...]] = [("", "", "loss", "held aside", "step", "peak")]
    for at, (side, loss, aside, time) in enumerate(
        zip(sides, *((None, *each(sides)) for each in (loss_differences, aside_differences, time_differences)))
    ):
        cells = _cells(at, side, sides[0], loss, time)
        rows.append((_FRONT if at in front else "", side_name(side), cells[0], _aside(at, side, aside), *cells[1:]))
    if not any(each.aside for each in sides):
        rows = [(*row[:3], *row[4:]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return [
        f"tried on {plural(len(sides[0].losses), 'step')} from the same state, with the same batches",
        *lines,
        _MEANING,
        *tried.notes,
    ]


def _cells(
    at: int, side: TriedSide, without: TriedSide, loss: PairedDifference | None, time: PairedDifference | None
) -> tuple[str, str, str]:
    mean, seconds = mean_loss(side), step_seconds(side)
    step = duration_text(seconds) if seconds is not None else DASH
    if not at:
        return (number_text(mean).strip() if mean is not None else DASH), step, DASH
    if not side.losses:
        return side.ended, "", ""
    ended = f"; {side.ended}" if side.ended else ""
    noise = " (noise)" if time is not None and time.is_noise else ""
    return loss_words(loss) + ended, step + noise, peak_words(side, without) or DASH


def _aside(at: int, side: TriedSide, difference: PairedDifference | None) -> str:
    if at:
        return loss_words(difference) if side.aside else ""
    mean = _mean(side.aside)
    return number_text(mean).strip() if mean is not None else DASH


def try_document(tried: ChangeTried) -> dict[str, Any]:
    """Return the report as plain data. Differences are those to the side without a change."""
    sides, front = tried.sides, on_front(tried.sides)
    differences = ((None, *each(sides)) for each in (loss_differences, aside_differences, time_differences))
    without = sides[0]
    return {
        "steps": len(without.losses),
        "sides": [
            {
                "change": side.change,
                "loss": mean_loss(side),
                "loss_difference": _difference(loss),
                "held_aside_loss": _mean(side.aside),
                "held_aside_difference": _difference(aside),
                "step_seconds": step_seconds(side),
                "time_difference": _difference(time),
                "peak_bytes": side.peak,
                "on_front": at in front,
                "ended": side.ended,
                "losses": list(side.losses),
            }
            for at, (side, loss, aside, time) in enumerate(zip(sides, *differences))
        ],
        "notes": list(tried.notes),
    }


def _difference(found: PairedDifference | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"mean": found.mean, "margin": found.margin, "pairs": found.pairs, "noise": found.is_noise}


def mean_loss(side: TriedSide) -> float | None:
    """Return the mean of the losses that are known."""
    return _mean(side.losses)


def _mean(losses: Sequence[float | None]) -> float | None:
    known = [each for each in losses if each is not None]
    return statistics.fmean(known) if known else None
