from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.tui.plots.plot_state import SMOOTHING_LEVELS as LEVELS
from gradtui.tui.plots.smoothing import smoothed

VALUES = st.lists(st.none() | st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf]), max_size=40)


@given(VALUES, st.sampled_from(LEVELS))
def test_non_finite_or_unknown_stays_put(values: list[float | None], level: float) -> None:
    result = smoothed(values, level)
    assert len(result) == len(values)
    for before, after in zip(values, result):
        if before is None or not math.isfinite(before):
            assert after is before
        else:
            assert after is not None
            assert math.isfinite(after)


@given(VALUES, st.sampled_from(LEVELS))
def test_an_average_lies_within_what_it_is_of(values: list[float | None], level: float) -> None:
    seen: list[float] = []
    for before, after in zip(values, smoothed(values, level)):
        if before is not None and after is not None and math.isfinite(before):
            seen.append(before)
            slack = 1e-9 * max(map(abs, seen)) + 1e-12
            assert min(seen) - slack <= after <= max(seen) + slack


def test_each_point_counts_by_its_age() -> None:
    # Weights of 1, 0.6 and 0.36, from the newest back.
    assert smoothed([1.0, 2.0, 4.0], 0.6)[-1] == pytest.approx((4 + 0.6 * 2 + 0.36 * 1) / 1.96)
    assert smoothed([1.0, math.nan, 4.0], 0.6)[-1] == pytest.approx((4 + 0.6 * 1) / 1.6)
