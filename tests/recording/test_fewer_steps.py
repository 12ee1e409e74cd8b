"""Events with the figures of several steps, of which a long recording keeps every other one and those that stand out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol.events import StepFigures, StepLosses, StepMemoryMeasured, StepsMeasured, StepTotals
from gradtui.records.recording.fewer_steps import halved

MIB = 1 << 20
NAN, INF = math.nan, math.inf


def measured_steps(
    losses: list[float], totals: list[float | None] | None = None, *, optimizers: int = 1
) -> StepsMeasured:
    """Figures of the steps 1, 2, …, whose optimizers take turns."""
    norms: list[float | None] = totals if totals is not None else [None] * len(losses)
    figures = tuple(
        StepFigures(step, (step - 1) % optimizers, loss, total=norm)
        for step, (loss, norm) in enumerate(zip(losses, norms), start=1)
    )
    return StepsMeasured(1.0, len(losses), figures)


def of_one_kind(losses: list[float], first: int = 1) -> StepsMeasured:
    steps = tuple(range(first, first + len(losses)))
    return StepsMeasured(1.0, steps[-1], (), (StepLosses(0, steps, tuple(losses)),))


def memory(peaks: list[int | None]) -> StepMemoryMeasured:
    totals = tuple(StepTotals(step, peak, None, 5, peak) for step, peak in enumerate(peaks, start=1))
    return StepMemoryMeasured(1.0, len(peaks), totals)


def losses_of(event: StepsMeasured | StepMemoryMeasured | None) -> list[tuple[int, float]]:
    assert isinstance(event, StepsMeasured)
    found = [(each.step, each.loss) for each in event.figures if each.loss is not None]
    return found + [pair for each in event.losses for pair in zip(each.steps, each.losses)]


def peaks_of(event: StepsMeasured | StepMemoryMeasured | None) -> list[tuple[int, int | None]]:
    assert isinstance(event, StepMemoryMeasured)
    return [(each.step, each.peak) for each in event.totals]


def to_the_end(event: StepsMeasured | StepMemoryMeasured) -> list[StepsMeasured | StepMemoryMeasured]:
    """What is left after each time, as often as there is anything to leave out."""
    found = [event]
    while (fewer := halved(found[-1])) is not None:
        found.append(fewer)
        assert len(found) < 100
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 10, 11])
def test_one_of_every_two_steps_is_left(count: int) -> None:
    events = (memory([MIB] * count), measured_steps([0.5] * count, [1.0] * count), of_one_kind([0.5] * count))
    for event in events:
        fewer = halved(event)
        if count == 1:
            assert fewer is None
            continue
        assert fewer is not None
        found = peaks_of(fewer) if isinstance(fewer, StepMemoryMeasured) else losses_of(fewer)
        assert len(found) == (count + 1) // 2
        assert all(step in pair for (step, _), pair in zip(found, zip(range(1, count + 1, 2), range(2, count + 2, 2))))


def test_number_of_steps_that_are_left_becomes_one() -> None:
    assert [len(losses_of(each)) for each in to_the_end(of_one_kind([0.5] * 20))] == [20, 10, 5, 3, 2, 1]
    assert [len(losses_of(each)) for each in to_the_end(measured_steps([0.5] * 20))] == [20, 10, 5, 3, 2, 1]
    assert [len(peaks_of(each)) for each in to_the_end(memory([1] * 20))] == [20, 10, 5, 3, 2, 1]


@pytest.mark.parametrize("at", range(12))
def test_the_largest_peak_stays(at: int) -> None:
    peaks: list[int | None] = [MIB + step for step in range(12)]
    peaks[at] = 2 * MIB
    for fewer in to_the_end(memory(peaks)):
        assert (at + 1, 2 * MIB) in peaks_of(fewer)


def test_steps_without_a_peak_give_way() -> None:
    assert peaks_of(halved(memory([None, 5, 7, None]))) == [(2, 5), (3, 7)]
    assert peaks_of(halved(memory([None, None]))) == [(1, None)]


def test_what_is_known_of_a_step_stays_together() -> None:
    totals = (StepTotals(1, 10, 20, 5, 20), StepTotals(2, 30, 10, 5, 40, True))
    event = StepMemoryMeasured(3.0, 2, totals, exact=False)
    assert halved(event) == StepMemoryMeasured(3.0, 2, (totals[1],), exact=False)
    figures = (StepFigures(1, 3, 0.5, "mean", 1.0, 2.0, 1.0), StepFigures(2, 3, 0.5, "mean", 100.0, 200.0, 1.0, False))
    fewer = halved(StepsMeasured(3.0, 2, figures))
    assert isinstance(fewer, StepsMeasured)
    assert fewer.figures == (figures[1],)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("at", range(12))
def test_values_that_are_not_finite_stay(at: int, value: float) -> None:
    usual = [1.0] * 12
    losses = [value if step == at else 1.0 for step in range(12)]
    for event in (of_one_kind(losses), measured_steps(losses)):
        for fewer in to_the_end(event):
            assert [step for step, loss in losses_of(fewer) if not math.isfinite(loss)] == [at + 1]
    totals: list[float | None] = [*losses]
    for fewer in to_the_end(measured_steps(usual, totals)):
        assert isinstance(fewer, StepsMeasured)
        assert [each.step for each in fewer.figures if not math.isfinite(each.total or 0)] == [at + 1]


@pytest.mark.parametrize("factor", [10.0, 0.1])
@pytest.mark.parametrize("at", range(1, 12))
def test_loss_that_is_far_from_one_before_stays(at: int, factor: float) -> None:
    losses = [1 + 0.01 * (step % 3) for step in range(12)]
    losses[at] *= factor
    for event in (of_one_kind(losses), measured_steps(losses)):
        fewer = halved(event)
        assert at + 1 in [step for step, _ in losses_of(fewer)]


@given(st.lists(st.floats(), min_size=2, max_size=40))
def test_steps_stay_in_order_when_thinned(losses: list[float]) -> None:
    for event in (of_one_kind(losses), measured_steps(losses)):
        for fewer in to_the_end(event):
            found = losses_of(fewer)
            assert [step for step, _ in found] == sorted({step for step, _ in found})
            assert all(loss is losses[step - 1] or loss == losses[step - 1] for step, loss in found)
        bad = any(not math.isfinite(loss) for loss in losses)
        assert any(not math.isfinite(loss) for _, loss in losses_of(halved(event))) == bad


@pytest.mark.parametrize("optimizers", [2, 3])
def test_the_curve_of_each_of_several_optimizers_stays(optimizers: int) -> None:
    """In a GAN their steps alternate."""
    fewer = halved(measured_steps([1.0] * 24, [2.0] * 24, optimizers=optimizers))
    assert isinstance(fewer, StepsMeasured)
    counts = [sum(each.optimizer == optimizer for each in fewer.figures) for optimizer in range(optimizers)]
    assert min(counts) >= 24 // optimizers // 4


@pytest.mark.parametrize("at", range(8))
def test_the_nan_of_any_optimizer_stays(at: int) -> None:
    losses = [NAN if step == at else 1.0 for step in range(8)]
    assert [step for step, loss in losses_of(halved(measured_steps(losses, optimizers=2))) if math.isnan(loss)] == [
        at + 1
    ]


def test_losses_and_figures_are_halved_together() -> None:
    figures = tuple(StepFigures(step, 0, None, total=1.0) for step in range(1, 9))
    event = StepsMeasured(1.0, 8, figures, (StepLosses(0, tuple(range(1, 9)), (0.5,) * 8),))
    fewer = halved(event)
    assert isinstance(fewer, StepsMeasured)
    assert (len(fewer.figures), len(fewer.losses[0].steps)) == (4, 4)
