"""A recording that is thinned keeps what is logged seldom, and of what is logged often the first and extreme values."""

from __future__ import annotations

from gradtui.protocol.events import MetricPoints, MetricsLogged
from gradtui.records.recording.fewer_metrics import LoggedValues

OFTEN = 2_000


def event(first: int, values: tuple[float, ...], name: str = "loss") -> MetricsLogged:
    steps = tuple(range(first, first + len(values)))
    return MetricsLogged(1.0, steps[-1], (MetricPoints(name, "wandb", False, steps, values),))


def survey(*events: MetricsLogged) -> LoggedValues:
    seen = LoggedValues()
    for each in events:
        seen.take(each)
    return seen


def test_every_other_value_of_a_frequent_metric_goes() -> None:
    values = [float(100 + number % 7) for number in range(OFTEN)]
    values[3], values[5] = 1.0, 1000.0
    whole = event(1, tuple(values))
    fewer = survey(whole).fewer(whole, drops_single=True)
    assert fewer.points[0].steps == (1, 3, 4, 5, 6, *range(7, OFTEN, 2))
    assert fewer.points[0].values[2:5:2] == (1.0, 1000.0)


def test_single_values_alternate_unless_they_stand_out() -> None:
    many = [event(step, (float(step),)) for step in range(1, OFTEN + 1)]
    seen = survey(*many)
    assert seen.fewer(many[7], drops_single=False) == many[7]
    assert seen.fewer(many[7], drops_single=True).points == ()
    assert seen.fewer(many[0], drops_single=True) == many[0]


def test_what_is_logged_once_an_epoch_stays() -> None:
    seldom = event(500, (0.9,), "val/accuracy")
    seen = survey(event(1, (0.5,) * OFTEN), seldom)
    assert seen.fewer(seldom, drops_single=True) == seldom
