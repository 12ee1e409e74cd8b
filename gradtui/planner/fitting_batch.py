"""Find the largest batch size with which a step fits into given memory. Any thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from gradtui.planner.batch import batch_of
from gradtui.planner.forecaster import Forecaster, NoForecastError
from gradtui.protocol.forecasts import ForecastAsked

_MOST = 1 << 24
"""No larger batch is looked for."""


class LargestBatch(NamedTuple):
    """The answer."""

    now: int
    """The batch size of the step."""
    largest: int
    """The largest one that fits, an estimate; 0 if not even one sample does."""
    peak: int
    """The forecast peak with `largest`, in bytes; that with one sample if `largest` is 0."""


def largest_batch(asked: ForecastAsked, room: int) -> LargestBatch:
    """Return the largest batch size with which the forecast peak of a step is at most `room` bytes.

    The peak is that of the whole process on the device, as in the profile of the step. With one more sample it is larger than
    `room`.

    Args:
        asked: the step, with its profile, and the change to make besides: `question(state, forecast_change(state, Change()))`
            for none. `batch_size` says the batch size if it is known. `batch_scale` has no effect.
        room: bytes that there are.

    Raises:
        NoBatchDimensionError: the batch cannot be found in the step.
        NoForecastError: there is no forecast of the peak.
    """
    now = batch_of(asked.operations, asked.batch_size).size
    forecaster, known = Forecaster(), dict[int, int]()

    def peak(size: int) -> int:
        if size not in known:
            known[size] = _peak(forecaster, replace(asked, batch_scale=Fraction(size, now)))
        return known[size]

    if peak(1) > room:
        return LargestBatch(now, 0, peak(1))
    fits, too_large = _around(peak, room, now)
    while too_large - fits > 1:
        between = _solved(peak(fits), peak(too_large), room, fits, too_large)
        # Phases take turns as the highest one, so the line through two sizes may lie below the peak, or above it.
        for size in (between, between + 1):
            if fits < size < too_large:
                fits, too_large = (size, too_large) if peak(size) <= room else (fits, size)
        middle = (fits + too_large) // 2
        if too_large - fits > 1:
            fits, too_large = (middle, too_large) if peak(middle) <= room else (fits, middle)
    return LargestBatch(now, fits, peak(fits))


def _around(peak: Callable[[int], int], room: int, now: int) -> tuple[int, int]:
    """Return a size that fits, and a larger one that does not."""
    fits, size = 1, max(2, now)
    while peak(size) <= room:
        if size >= _MOST:
            raise NoForecastError("the peak does not grow with the batch size")
        # Memory is affine in the batch size while the same phase is the highest one.
        fits, guess = size, _solved(peak(fits), peak(size), room, fits, size) + 1
        size = min(_MOST, max(guess, size + 1 if guess > size else 2 * size))
    return fits, size


def _solved(low: int, high: int, room: int, size: int, larger: int) -> int:
    """Return the largest size at which the line through two sizes is at most `room`."""
    return size + (room - low) * (larger - size) // (high - low) if high > low else 2 * larger


def _peak(forecaster: Forecaster, asked: ForecastAsked) -> int:
    answer = forecaster.with_peak(forecaster.answer(asked), asked)
    if asked.peaks is None or answer.peak is None:
        raise NoForecastError(", ".join(answer.unknown) or "the peak of a step cannot be forecast")
    return asked.peaks.highest[1] + answer.peak
