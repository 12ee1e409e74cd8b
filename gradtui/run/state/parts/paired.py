"""The difference of two runs over the same batches, with an interval that allows for batches that are not independent. Pure.

The batches are paired, so what they have in common cancels. The differences of neighbouring batches are alike, since each step
begins where the one before has ended. So their variance is not that of independent values: it is estimated from the lowest
frequencies of the series of T differences, by the equal-weighted cosine estimator with B = 0.4 T^(2/3) of them. The interval
has the quantile of Student's t with B degrees of freedom. Source: Lazarus, Lewis, Stock, Watson, "HAR Inference:
Recommendations for Practice", Journal of Business & Economic Statistics 36 (2018), 541-559.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradtui.dataclass import dataclass

LEAST = 10
"""Of fewer pairs there is no interval."""
_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
    2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""The 97.5 % quantiles of Student's t with 1 to 30 degrees of freedom."""
_NORMAL = 1.959964
"""The same of the normal distribution."""


@dataclass(frozen=True)
class PairedDifference:
    """The mean of the differences, and the 95 % interval of it."""

    mean: float
    margin: float | None
    """Half the width of the interval; None of fewer than `LEAST` pairs."""
    pairs: int

    @property
    def is_noise(self) -> bool:
        """Whether the interval contains 0, or is unknown: the difference may be one of these batches only."""
        return self.margin is None or abs(self.mean) <= self.margin


def paired_difference(
    without: Sequence[float | None], with_it: Sequence[float | None], *, are_independent: bool = False
) -> PairedDifference | None:
    """Return how much larger the second of two series is, by pairs of which both are known; None if there is none.

    If the pairs `are_independent`, their interval is that of Student's paired t-test.
    """
    differences = [
        after - before for before, after in zip(without, with_it) if before is not None and after is not None
    ]
    if not differences or not all(map(math.isfinite, differences)):
        return None
    mean = math.fsum(differences) / len(differences)
    margin = _independent_margin if are_independent else _margin
    return PairedDifference(mean, margin(differences, mean), len(differences))


def _independent_margin(differences: Sequence[float], mean: float) -> float | None:
    count = len(differences)
    if count < 2:
        return None
    variance = math.fsum((each - mean) ** 2 for each in differences) / (count - 1)
    return quantile(count - 1) * math.sqrt(variance / count)


def _margin(differences: Sequence[float], mean: float) -> float | None:
    count = len(differences)
    if count < LEAST:
        return None
    frequencies = max(1, int(0.4 * count ** (2 / 3)))
    weights = (
        math.sqrt(2 / count)
        * math.fsum(
            (value - mean) * math.cos(math.pi * frequency * (at + 0.5) / count) for at, value in enumerate(differences)
        )
        for frequency in range(1, frequencies + 1)
    )
    long_run_variance = math.fsum(weight * weight for weight in weights) / frequencies
    return quantile(frequencies) * math.sqrt(long_run_variance / count)


def quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t, above 30 degrees of freedom by the expansion of Cornish and Fisher."""
    if freedom <= len(_QUANTILES):
        return _QUANTILES[freedom - 1]
    return _NORMAL + (_NORMAL**3 + _NORMAL) / (4 * freedom)
