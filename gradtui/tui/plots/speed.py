"""How many steps the run makes in a second, over steps. Pure."""

from __future__ import annotations

from dataclasses import replace

from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import rate_text
from gradtui.tui.plots.curves import curves_request, legend_of, run_range, table_of
from gradtui.tui.plots.options import Curve, Plot, PlotOptions
from gradtui.tui.plots.run_events import marks_over
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import wrap

_NONE_YET = "The speed is known after the first steps."


def speed_curves(state: RunState) -> list[Curve]:
    """Return the curve of the steps per second; none before the first value."""
    rates = state.throughput.rates
    return [Curve("steps/s", "curve-1", rates.steps, rates.values, means=rates.means)] if len(rates) else []


def speed_plot(state: RunState, options: PlotOptions, width: int, height: int) -> Plot:
    """Return the plot of the steps per second."""
    curves = speed_curves(state)
    whole = run_range(curves, float(state.step))
    if whole is None:
        return Plot(tuple(wrap(((_NONE_YET, "muted"),), width)), None)
    ends = options.window.ends(*whole)
    above = legend_of(curves, ends, lambda value: rate_text(value).strip(), width, options)
    marks = marks_over(state, whole[0])
    rows = height - len(above)
    request = curves_request(curves, options, ends, "linear", width, rows, y_label="steps/s", state=state, marks=marks)
    request = replace(request, from_zero=not options.other_scale)
    parts = ["with evaluations, saves and gradtui's own work"]
    parts += [f"EMA {options.smoothing:g}"] if options.smoothing > 0 else []
    parts.append(f"axis {'near its values' if options.other_scale else 'from zero'}")
    return Plot(above, request, range=whole, note=" · ".join(parts), curves=tuple(curves), marks=marks)


def speed_table(state: RunState, options: PlotOptions) -> Table:
    """Return the visible values by the last of the steps that each is the mean of."""
    return table_of([replace(each, name="steps_per_second") for each in speed_curves(state)], options)
