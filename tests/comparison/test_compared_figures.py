"""Two runs as plain data, with differences that arithmetic gives."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace

import pytest
from helpers.summaries import finding

from gradtui.protocol.run_summary import Finding
from gradtui.records.comparison import Figure, RunFigures, compare
from gradtui.records.comparison.figures import NO_NORM, Intervention, Norms, Peak, Reported
from gradtui.records.comparison.statistics import do_overlap, figure_of

EMPTY = RunFigures("empty", has_series=True)


def of_steps(steps: int, **fields: object) -> RunFigures:
    return replace(EMPTY, steps=steps, **fields)  # type: ignore[arg-type]


def test_quartiles_are_of_the_weights() -> None:
    # Expanded: 1, 1, 1, 2, 3, 4, 4, 4; of eight values the second, the fourth and the sixth reach 1/4, 1/2 and 3/4.
    assert figure_of([(4.0, 3), (1.0, 3), (3.0, 1), (2.0, 1)]) == Figure(2.0, 1.0, 4.0, 4)


@pytest.mark.parametrize(
    ("a", "b", "overlap"),
    [((1, 2), (2, 3), True), ((1, 2), (2.1, 3), False), ((5, 6), (1, 4), False), ((1, 9), (4, 5), True)],
)
def test_ranges_overlap_if_they_share_a_value(a: tuple[float, float], b: tuple[float, float], overlap: bool) -> None:
    assert do_overlap(Figure(0.0, *a), Figure(0.0, *b)) is overlap
    assert do_overlap(Figure(0.0, *a), Figure(0.0)) is None


def test_step_takes_median_of_shared_reports() -> None:
    def reports(*milliseconds: float) -> tuple[Reported, ...]:
        # Two steps a report: a third of the time in forward, the rest in backward. Loading is no part of a step.
        return tuple(
            Reported(2 * at, 2, {"forward": each / 500 / 3, "backward": each / 500 * 2 / 3, "load": 7.0})
            for at, each in enumerate(milliseconds, 1)
        )

    a = of_steps(8, times=reports(30, 30, 60, 90))
    # Two reports more, which A has no steps for.
    b = of_steps(12, times=reports(60, 60, 90, 120, 900, 900))
    found = compare(a, b)
    rows = {row.name: row for row in found.times}
    assert found.are_times_medians
    assert (rows["step"].a.value, rows["step"].b.value) == pytest.approx((0.030, 0.060))
    assert (rows["step"].a.low, rows["step"].a.high) == pytest.approx((0.030, 0.060))
    assert rows["forward"].relative == pytest.approx(1.0)
    assert rows["backward"].difference == pytest.approx(0.020)
    # 30 to 60 and 60 to 90 have 60 in common.
    assert rows["step"].overlaps


def test_totals_give_means_without_a_spread() -> None:
    a = RunFigures("a", steps=10, times=(Reported(10, 10, {"forward": 0.2, "data": 0.1}),))
    b = of_steps(4, times=tuple(Reported(at, 1, {"forward": 0.06}) for at in range(1, 5)))
    found = compare(a, b)
    assert not found.are_times_medians
    step = found.times[0]
    assert (step.a.value, step.b.value) == pytest.approx((0.03, 0.06))
    assert step.overlaps is None


def test_loss_is_of_last_tenth_of_shared_steps() -> None:
    falling = tuple((step, 1 / step) for step in range(1, 201))
    a, b = of_steps(100, loss=falling[:100]), of_steps(200, loss=tuple((step, 2 * loss) for step, loss in falling))
    found = compare(a, b)
    assert found.window == (91, 100)
    # Of ten values in the order of their size the fifth is the first to reach a half: 1/96.
    assert found.loss.a.value == pytest.approx(1 / 96)
    assert found.loss.relative == pytest.approx(1.0)


@pytest.mark.parametrize(("every", "first"), [(1, 91), (2, 91), (3, 76), (5, 76), (10, 51), (40, 91)])
def test_end_is_as_long_as_four_measurements_need(every: int, first: int) -> None:
    # Of each third step, 93, 96 and 99 are in the last tenth. Of each 40th, even the half has only one: nothing is gained.
    sparse = of_steps(100, loss=tuple((step, 1.0) for step in range(every, 101, every)))
    dense = of_steps(100, loss=tuple((step, 1.0) for step in range(1, 101)))
    assert compare(sparse, dense).window == compare(dense, sparse).window == (first, 100)


def test_a_loss_that_has_become_nan_is_nan() -> None:
    losses = [(step, 0.5) for step in range(1, 20)]
    found = compare(of_steps(20, loss=tuple(losses)), of_steps(20, loss=(*losses, (20, math.nan))))
    assert found.loss.b.value is not None
    assert math.isnan(found.loss.b.value)
    assert found.loss.difference is None


def test_step_skipped_by_scaler_is_no_norm() -> None:
    norms = tuple((step, math.inf if step == 20 else 2.0) for step in range(1, 21))
    found = compare(of_steps(20, gradient_norm=norms), of_steps(20, gradient_norm=norms))
    assert found.norms[0].a.value == 2.0


def test_norms_of_modules_combine_their_parameters() -> None:
    paths = "encoder.a.weight", "encoder.a.bias", "head"
    a = of_steps(10, norms=tuple(Norms(step, paths, array("d", (3.0, 4.0, 1.0))) for step in range(1, 11)))
    b = of_steps(10, norms=tuple(Norms(step, paths, array("d", (NO_NORM, NO_NORM, 2.0))) for step in range(1, 11)))
    rows = {row.name: row for row in compare(a, b).norms}
    assert rows.keys() == {"all", "encoder.a.weight", "encoder.a.bias", "head"}
    assert (rows["encoder.a.weight"].a.value, rows["encoder.a.weight"].b.value) == (3.0, None)
    assert rows["head"].relative == 1.0

    many = (*(f"encoder.{at}.{name}" for at in range(12) for name in ("weight", "bias")), "head")
    values = array("d", (3.0, 4.0) * 12 + (1.0,))
    a = of_steps(10, norms=tuple(Norms(step, many, values) for step in range(1, 11)))
    rows = {row.name: row for row in compare(a, a).norms}
    # Twelve blocks and the head would be thirteen groups.
    assert rows.keys() == {"all", "encoder", "head"}
    assert rows["encoder"].a.value == pytest.approx(math.sqrt(12) * 5)


def test_partly_measured_step_is_not_norm_of_module() -> None:
    norms = [Norms(step, ("m.a", "m.b"), array("d", (3.0, NO_NORM if step % 2 else 4.0))) for step in range(1, 11)]
    run = of_steps(10, norms=tuple(norms))
    rows = {row.name: row for row in compare(run, run).norms}
    assert rows["m.a"].a.value == 3.0
    assert rows["m.b"].a.count == 5


def test_peak_is_lower_bound_if_any_phase_is() -> None:
    a = of_steps(1, peaks={"forward": Peak(100, "exact"), "backward": Peak(80, "exact")})
    b = of_steps(1, peaks={"forward": Peak(100, "exact"), "backward": Peak(125, "at least")})
    rows = {row.name: row for row in compare(a, b).peaks}
    assert (rows["peak"].difference, rows["peak"].relative) == (25, 0.25)
    assert (rows["peak"].a.bound, rows["peak"].b.bound, rows["forward"].b.bound) == ("exact", "at least", "exact")
    assert rows["eval"].a.value is None
    assert rows["eval"].difference is None


def problem(rule: str, *paths: str, status: str = "confirmed", cleared: int | None = None) -> Finding:
    return finding(rule, status=status, paths=list(paths), first_step=1, cleared_step=cleared)


def test_findings_are_same_if_they_share_paths() -> None:
    a = problem("GT104", "x", "y"), problem("GT104", "z"), problem("GT201"), problem("GT301", cleared=5), problem("GT9")
    b = problem("GT104", "y", "v"), problem("GT104", "w"), problem("GT201"), problem("GT301"), problem("GT9", cleared=3)
    pairs = compare(of_steps(1, findings=a), of_steps(1, findings=b)).findings
    named = {
        change: [(pair.a, pair.b) for pair in pairs if pair.change == change] for change in ("new", "gone", "both")
    }
    assert named["both"] == [(a[0], b[0]), (a[2], b[2])]
    assert named["gone"] == [(a[1], None), (a[4], b[4])]
    assert named["new"] == [(a[3], b[3]), (None, b[1])]
    assert [pair.is_newly_confirmed for pair in pairs if pair.change == "new"] == [True, True]


def test_a_suspected_finding_is_new_and_not_confirmed() -> None:
    suspected = problem("GT104", status="suspected")
    (pair,) = compare(of_steps(1), of_steps(1, findings=(suspected,))).findings
    assert (pair.change, pair.is_newly_confirmed) == ("new", False)


def test_changes_are_the_same_at_the_same_step() -> None:
    early, late = (Intervention(step, "freeze x", "froze x", None) for step in (5, 9))
    found = compare(of_steps(9, interventions=(early, early)), of_steps(9, interventions=(early, late))).interventions
    assert (found.only_a, found.only_b, found.both) == ((early,), (late,), (early,))


def test_metrics_are_compared_by_name_at_the_end() -> None:
    noisy = tuple((step, float(step % 4)) for step in range(1, 41))
    a = of_steps(40, metrics={"loss": noisy, "val": ((20, 0.5), (40, 0.7))})
    b = of_steps(60, metrics={"loss": noisy, "val": ((20, 0.6), (40, 0.8), (60, 0.9)), "new": ((50, 1.0),)})
    rows = {row.name: row for row in compare(a, b).metrics}
    assert [*rows] == ["loss", "val", "new"]
    # The steps 31 to 40 have 3, 0, 1, 2, 3, 0, 1, 2, 3, 0.
    assert (rows["loss"].a.value, rows["loss"].a.count) == (1.0, 10)
    assert (rows["val"].a.value, rows["val"].b.value) == (0.7, 0.8)
    assert (rows["new"].a.value, rows["new"].b.value) == (None, 1.0)
