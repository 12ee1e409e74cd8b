"""The charts of a report. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gradtui.records.report.chart_parts import Chart, Spec, Steps, over_steps, step_axis, tooltip
from gradtui.records.report.contents import Contents
from gradtui.records.report.curves import Curve
from gradtui.records.report.memory_charts import phases_chart, step_chart, totals_chart
from gradtui.records.report.run_series import Mark, RunSeries
from gradtui.run.text.units import number_text, short_rate
from gradtui.system.printable import printable

_LOG_FACTOR = 100
"""Curves of positive values that differ by more than this factor have a logarithmic axis."""


def charts(contents: Contents) -> list[Chart]:
    """Return the charts for which there is data."""
    steps = _steps(contents)
    series = contents.series
    found = [
        _curves("loss", "Loss over steps", [series.loss], steps, series),
        *(
            _curves(other_loss(at), "Loss of another optimizer over steps", [curve], steps, series)
            for at, curve in enumerate(series.other_losses)
        ),
        _curves("norms", "L2 norm of all gradients over steps", [*series.norms, *series.clipping], steps, series),
        _rates(series, steps),
        *(
            _curves(metric_chart(at), f"{printable(chart.title)} over steps", chart.curves, steps, series)
            for at, chart in enumerate(contents.metrics.charts)
        ),
        phases_chart(contents.memory),
        step_chart(contents.memory.step),
        totals_chart(contents.memory, steps),
        _speed(series, steps) if contents.time is not None else None,
    ]
    return [chart for chart in found if chart is not None]


def other_loss(at: int) -> str:
    """Return the name of the chart of the loss of another optimizer than the main one."""
    return f"loss-{at + 2}"


def metric_chart(at: int) -> str:
    """Return the name of the chart of a quantity that the script logs."""
    return f"metric-{at + 1}"


def _steps(contents: Contents) -> Steps:
    """Return the first and the last step of all charts over steps."""
    series = contents.series
    curves = (series.loss, *series.other_losses, *series.norms, *series.clipping, *series.rates)
    lines = [curve.points for curve in curves] + [points for _, points in series.totals]
    lines += [series.throughput.points] if contents.time is not None else []
    lines += [curve.points for chart in contents.metrics.charts for curve in chart.curves]
    ends = [step for points in lines for step, _ in points[:1] + points[-1:]]
    first = min(ends, default=0)
    return first, max(*ends, first + 1) if ends else 1


def _curves(name: str, label: str, curves: Sequence[Curve], steps: Steps, series: RunSeries) -> Chart | None:
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return None
    values = [value for curve in curves for _, value in curve.points]
    is_log = min(values) > 0 and max(values) > _LOG_FACTOR * min(values)
    rows = [*_rows(curves, _number), *_gaps(curves, series.breaks)]
    spec = over_steps(rows, [curve.name for curve in curves], steps)
    if is_log:
        y = spec["encoding"]["y"]
        y["scale"] = {"type": "log", "nice": False}
        y["axis"].pop("tickCount")
        y["axis"] |= {"values": _log_ticks(min(values), max(values)), "labelOverlap": False}
    bad = sorted({step for curve in curves for step in curve.not_finite})
    spec["layer"] += [*_mark_layers(series.marks, steps), *_bad_layers(bad)]
    return Chart(name, label, spec, has_steps=True, is_log=is_log)


def _rates(series: RunSeries, steps: Steps) -> Chart | None:
    if not series.rates:
        return None
    # A learning rate holds until it is set again.
    held = [
        Curve(each.name, (*each.steps, max(steps[1], each.steps[-1])), (*each.values, each.values[-1]))
        for each in series.rates
    ]
    spec = over_steps(_rows(held, short_rate), [curve.name for curve in held], steps)
    spec["layer"][0]["mark"]["interpolate"] = "step-after"
    spec["encoding"]["y"]["scale"]["zero"] = True
    spec["encoding"]["y"]["axis"]["format"] = ".1~e"
    spec["layer"] += _mark_layers(series.marks, steps)
    return Chart("rates", "Learning rates over steps", spec, has_steps=True)


def _speed(series: RunSeries, steps: Steps) -> Chart | None:
    if not series.throughput.points:
        return None
    spec = over_steps(_rows([series.throughput], _number), [series.throughput.name], steps)
    spec["encoding"]["y"]["scale"]["zero"] = True
    spec["layer"] += _mark_layers(series.marks, steps)
    return Chart("speed", "Steps per second over steps", spec, has_steps=True)


def _rows(curves: Sequence[Curve], text: Callable[[float], str]) -> list[dict[str, Any]]:
    return [
        {"step": step, "value": value, "curve": curve.name, "text": text(value)}
        for curve in curves
        for step, value in curve.points
    ]


def _gaps(curves: Sequence[Curve], breaks: Sequence[int]) -> list[dict[str, Any]]:
    """Return points without a value, at which lines break."""
    return [{"step": step + 0.5, "value": None, "curve": curve.name, "text": ""} for step in breaks for curve in curves]


def _log_ticks(least: float, most: float) -> list[float]:
    """Return the powers of ten within a range, and their multiples by 2 and 5 if they are few."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    ticks = [10.0**power for power in powers if least <= 10.0**power <= most]
    if len(ticks) < 3:
        ticks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    return [tick for tick in ticks if least <= tick <= most]


def _mark_layers(marks: Sequence[Mark], steps: Steps) -> list[Spec]:
    """Return dashed lines where something happened between two steps, each with a grip that says what."""
    rows = [
        {"at": mark.step + 0.5, "step": mark.step, "what": printable(f"{mark.kind}: {mark.text}")}
        for mark in marks
        if steps[0] <= mark.step + 0.5 <= steps[1]
    ]
    if not rows:
        return []
    words = tooltip(("step", "after step"), ("what", "then"))
    encoding = {"x": step_axis("at"), "y": None, "tooltip": words}
    looks = {"color": "var(--reference)", "clip": True}
    line = {"type": "rule", "strokeDash": [3, 3], "strokeWidth": 1.5, **looks}
    grip = {"type": "point", "shape": "triangle-down", "filled": True, "size": 70, "y": 5, **looks}
    return [{"data": {"values": rows}, "mark": mark, "encoding": encoding} for mark in (line, grip)]


def _bad_layers(steps: Sequence[int]) -> list[Spec]:
    """Return crosses at the steps whose value is not finite."""
    if not steps:
        return []
    cross = {
        "type": "point",
        "shape": "cross",
        "filled": True,
        "size": 60,
        "color": "var(--bad)",
        "y": "height",
        "clip": True,
    }
    words = tooltip(("step", "step"), ("what", "value"))
    rows = [{"step": step, "what": "NaN or Inf"} for step in steps]
    encoding = {"x": step_axis("step"), "y": None, "tooltip": words}
    return [{"data": {"values": rows}, "mark": cross, "encoding": encoding}]


def _number(value: float) -> str:
    return number_text(value).strip()
