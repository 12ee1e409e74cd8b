"""The gradient norms on all ranks of a job in words. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gradtui.run.explanation.page_facts import RankNorms
from gradtui.run.state.parts.job import NormRange
from gradtui.run.text.ranks import rank_names
from gradtui.run.text.units import capitalized, number_text, plural

_LISTED = 4
"""Ranks whose norms are listed one by one."""


def range_text(found: NormRange, width: int) -> str:
    """Return the lowest and the highest norm and the outlier, `0.84–1.2 r3`; where that is too long, how far they are apart."""
    rank = f" r{found.outlier}" if found.outlier is not None else ""
    if found.missing:
        having = "only" if found.outlier is not None and found.outlier not in found.missing else "not"
        return f"{having}{rank}" if rank else f"{len(found.missing)} without"
    for digits in (3, 2, 1):
        text = f"{_short(found.low, digits)}–{_short(found.high, digits)}{rank}"
        if len(text) <= width:
            return text
    times = found.high / found.low if found.low else math.inf
    return f"×{_short(times, 2)}{rank}"


def _short(value: float, digits: int) -> str:
    if not math.isfinite(value):
        return number_text(value).strip()
    text = f"{value:.{digits}g}"
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if e else text


def rank_norms_words(found: RankNorms | None) -> str | None:
    """Return what the norm of a parameter's gradient is on each rank; None if this is no job of several ranks."""
    if found is None:
        return None
    at = dict(found.at)
    if found.unlike is not None:
        return f"{differing_words(found.unlike, found.ranks)} (step {found.unlike.step:,})."
    if found.is_replica:
        return f"The norm is the same on all {plural(len(at), 'rank')} (step {found.step:,})." if at else None
    if not at:
        return "The parts of the ranks are combined once all of them have measured the same step."
    return f"The norm is combined from {plural(len(at), 'part')}: {_listed(at)} (step {found.step:,})."


def differing_words(found: NormRange, ranks: int) -> str:
    """Return a clause with the lowest and the highest norm on all ranks, or with the ranks that have no gradient."""
    low, high = number_text(found.low).strip(), number_text(found.high).strip()
    if found.missing:
        having = ranks - len(found.missing)
        if having == 1:
            return f"Only rank {found.low_rank} has a gradient, of norm {low}"
        names = rank_names(found.missing)
        verb = "has" if len(found.missing) == 1 else "have"
        return f"{capitalized(names)} {verb} no gradient, the others have one"
    apart = f"; rank {found.outlier} is furthest from the others" if ranks > 2 and found.outlier is not None else ""
    return f"The norm differs between ranks: {low} on rank {found.low_rank}, {high} on rank {found.high_rank}{apart}"


def _listed(at: Mapping[int, float]) -> str:
    def text(rank: int) -> str:
        return f"{number_text(at[rank]).strip()} on rank {rank}"

    if len(at) <= _LISTED:
        return ", ".join(map(text, sorted(at)))
    low, high = min(at, key=at.__getitem__), max(at, key=at.__getitem__)
    return f"from {text(low)} to {text(high)}"
