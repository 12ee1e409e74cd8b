"""Thresholds of a comparison."""

from __future__ import annotations

import math

import pytest
from helpers.summaries import finding

from gradtui.records.comparison import QUANTITIES, RunFigures, ThresholdError, compare, threshold_of
from gradtui.records.comparison.figures import Peak, Reported


def run(peak: int | None, step_ms: float, loss: float, *rules: str) -> RunFigures:
    return RunFigures(
        "run",
        steps=10,
        has_series=True,
        peaks={"forward": Peak(peak, True)} if peak is not None else {},
        times=tuple(Reported(step, 1, {"forward": step_ms / 1000}) for step in range(1, 11)),
        loss=tuple((step, loss) for step in range(1, 11)),
        trained_elements=100,
        findings=tuple(finding(rule, level="note") for rule in rules),
    )


A, B = run(1 << 20, 50, 0.5, "GT1", "GT2"), run(int(1.25 * (1 << 20)), 60, 0.4, "GT1", "GT3")


@pytest.mark.parametrize(
    ("text", "exceeded"),
    [
        ("peak>+24%", True),
        ("peak>+25%", False),
        ("peak>1.2MiB", True),
        ("peak>1.3M", False),
        ("peak>+256KiB", False),
        ("peak>+262KB", True),
        ("peak < 1.25MiB", False),
        ("step-time>+19%", True),
        ("step-time>+21%", False),
        ("step-time>59ms", True),
        ("step-time>+0.011", False),
        ("forward-time>+9ms", True),
        ("loss>0.5", False),
        ("loss>4e-1", False),
        ("loss<+0", True),
        ("loss<-0.2", False),
        ("loss<-0.05", True),
        ("findings>1", True),
        ("findings>+0", False),
        ("new-findings>0", True),
        ("new-findings>1", False),
        ("trained<101", True),
        ("trained<+0", False),
    ],
)
def test_threshold_is_of_b_or_of_change(text: str, exceeded: bool) -> None:
    assert threshold_of(text).verdict(compare(A, B)).exceeded is exceeded


@pytest.mark.parametrize("text", ["peak>+5%", "peak>1B", "peak<1B", "gradient-norm>1", "activations>+1"])
def test_what_is_unknown_exceeds_each_threshold(text: str) -> None:
    verdict = threshold_of(text).verdict(compare(run(None, 50, 0.5), run(None, 50, 0.5)))
    assert (verdict.exceeded, verdict.found) == (True, None)


@pytest.mark.parametrize("text", ["loss>0.5", "loss<0.5", "loss>+5%"])
def test_nan_exceeds_each_threshold(text: str) -> None:
    assert threshold_of(text).verdict(compare(A, run(1, 50, math.nan))).exceeded


@pytest.mark.parametrize(
    "text",
    ["", "peak", "peak>", "peak>=5", "speed>5", "peak>5%", "peak>5ms", "loss>5kB", "loss>nan", "loss>0.5 or peak>1"],
)
def test_what_is_no_threshold(text: str) -> None:
    with pytest.raises(ThresholdError) as error:
        threshold_of(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", QUANTITIES)
def test_each_quantity_can_be_asked_for(name: str) -> None:
    assert threshold_of(f"{name}>1").verdict(compare(A, B)).row.unit == QUANTITIES[name][0]


def test_threshold_may_be_of_what_script_logs() -> None:
    a = RunFigures("a", steps=30, has_series=True, metrics={"val/loss": ((10, 0.9), (30, 0.5)), "x>1": ((1, 2.0),)})
    b = RunFigures("b", steps=30, has_series=True, metrics={"val/loss": ((10, 0.8), (30, 0.55))})
    found = compare(a, b)

    def exceeds(text: str) -> bool:
        return threshold_of(text).verdict(found).exceeded

    assert exceeds("metric:val/loss>+9%")
    assert not exceeds("metric:val/loss>+11%")
    assert exceeds("metric:val/loss > 0.54")
    assert not exceeds("metric:val/loss<0.5")
    assert exceeds("metric:x>1>5"), "B does not have it"
    assert exceeds("metric:nothing<1")
    with pytest.raises(ThresholdError, match="no unit"):
        threshold_of("metric:val/loss>5MiB")
    with pytest.raises(ThresholdError, match="metric:NAME"):
        threshold_of("accuracy>5")
