"""Gradient norm by layer, to show vanishing or exploding gradients. Layers of one kind stand together. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, floor, isfinite

from gradtui.run.state.run_state import RunState
from gradtui.run.text.gradients import norms_awaited
from gradtui.tui.charts.request import Scale, VerticalLine
from gradtui.tui.plots.cursor import read
from gradtui.tui.plots.curves import NORM_AXIS, cursor_words, curves_request, legend, lines_below, short
from gradtui.tui.plots.layers import Layers, layers_of
from gradtui.tui.plots.options import SELECTED_ROLE, Curve, Plot, PlotOptions
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import Line, elide_start, printable, width_of, wrap

NOW_ROLE, THEN_ROLE = "curve-1", "curve-3"


def depth_plot(state: RunState, options: PlotOptions, width: int, height: int) -> Plot:
    """Return the plot of the norms by layer. With many layers it may be some drawings old; the step in the legend says so."""
    layers = options.kept.layers(state, options.order)
    if layers is None or not layers.modules:
        return Plot(tuple(wrap(((norms_awaited(state), "muted"),), width)), None)
    if len(layers.modules) == 1:
        return Plot(tuple(wrap(((_only(state, layers), "muted"),), width)), None, note=_order(options))
    return options.kept.plot(
        (layers, options, width, height), lambda: _depth_plot(state, layers, options, width, height)
    )


def _depth_plot(state: RunState, layers: Layers, options: PlotOptions, width: int, height: int) -> Plot:
    whole = 1.0, float(len(layers.modules))
    ends = options.window.ends(*whole)
    scale: Scale = "linear" if options.other_scale else "log"
    xs = tuple(map(float, range(1, len(layers.modules) + 1)))
    now = Curve(f"step {layers.step:,}", NOW_ROLE, xs, layers.now, can_be_smooth=False)
    then = Curve(f"step {layers.first_step:,}", THEN_ROLE, xs, layers.then, can_be_smooth=False)
    chosen = _chosen(state, options, layers, xs)
    curves = [then, now] if layers.first_step != layers.step else [now]
    entries = [(curve, _at_cursor(curve, ends, options)) for curve in reversed(curves)]
    read_curves = tuple(curves)
    if chosen is not None:
        curves.append(chosen)
        entries.append((chosen, short(chosen.values[0]) if len(chosen.values) == 1 else ""))
    above = legend(entries, width, opening=_layer_at_cursor(state, layers, options, width))
    below = lines_below(_words(state, layers), "muted", width, height)
    request = curves_request(
        [part for curve in curves for part in _by_kind(curve, layers)],
        options,
        ends,
        scale,
        width,
        height - len(above) - len(below),
        x_label="layer",
        y_label=NORM_AXIS,
    )
    request = replace(request, verticals=_kind_lines(layers, ends))
    part = f"layers {ceil(ends[0]):,}–{floor(ends[1]):,} · " if ends != whole else ""
    return Plot(above, request, below, whole, f"{part}{_order(options)} · {scale}", read_curves)


def _at_cursor(curve: Curve, ends: tuple[float, float], options: PlotOptions) -> str:
    return "" if options.cursor is None else short(read(curve, ends, options.cursor).value)


def _layer_at_cursor(state: RunState, layers: Layers, options: PlotOptions, width: int) -> Line:
    """Name the layer at the cursor."""
    if options.cursor is None or not layers.modules:
        return ()
    at = min(max(1, round(options.cursor)), len(layers.modules))
    name = elide_start(printable(_name(state, layers.modules[at - 1])), max(8, width // 3))
    return cursor_words(f"layer {at:,} {name}")


def _by_kind(curve: Curve, layers: Layers) -> Iterator[Curve]:
    """Yield the part of each kind: a line from one kind to the next would be no trend. Layers of various kinds are points."""
    ends = [kind.start + 1 for kind in layers.kinds[1:]]
    if layers.kinds and not layers.kinds[-1].name:
        ends += range(layers.kinds[-1].start + 2, len(layers.modules) + 1)
    for start, end in pairwise(sorted({0, *(bisect_left(curve.steps, number) for number in ends), len(curve.steps)})):
        yield replace(curve, steps=curve.steps[start:end], values=curve.values[start:end], stride=1.0)


def _kind_lines(layers: Layers, ends: tuple[float, float]) -> tuple[VerticalLine, ...]:
    """Return where each kind begins. The one in which the visible part begins stands at its left edge."""
    starts = [float(kind.start + 1) for kind in layers.kinds]
    return tuple(
        VerticalLine(max(start, ends[0]), "┌", "muted", _one_cell_each(kind.name or "others"))
        for start, end, kind in zip(starts, [*starts[1:], ends[1] + 1], layers.kinds)
        if start <= ends[1] and end > ends[0]
    )


def _one_cell_each(words: str) -> str:
    shown = printable(words)
    return shown if width_of(shown) == len(shown) else ""


def _order(options: PlotOptions) -> str:
    return {
        "kind": "layers of one kind together",
        "tree": "in the order of the tree",
        "calls": "in the order of the calls",
    }[options.order]


def depth_table(state: RunState, options: PlotOptions) -> Table:
    """Return the visible norms by layer."""
    layers = layers_of(state, options.order)
    if layers is None:
        return Table(("layer", "module", "norm"), ())
    first, last = options.window.ends(1.0, float(max(1, len(layers.modules))))
    columns = ("layer", "module", f"norm_step_{layers.step}", f"norm_step_{layers.first_step}")
    rows = tuple(
        (number, _name(state, module), now, then)
        for number, (module, now, then) in enumerate(zip(layers.modules, layers.now, layers.then), 1)
        if first <= number <= last
    )
    if layers.step == layers.first_step:
        return Table(columns[:3], tuple(row[:3] for row in rows))
    return Table(columns, rows)


def _name(state: RunState, index: int) -> str:
    module = state.tree.modules[index]
    return module.path or module.name


def _chosen(state: RunState, options: PlotOptions, layers: Layers, xs: Sequence[float]) -> Curve | None:
    """Return the curve of the selected row's layers, drawn over the others; None if that is none or all of them."""
    selection = options.selection
    if selection is None:
        return None
    modules = state.tree.modules
    inside = [
        at
        for at, module in enumerate(map(modules.__getitem__, layers.modules))
        if module.first_parameter < selection.last and selection.first < module.first_parameter + module.own_parameters
    ]
    if not inside or len(inside) == len(xs) > 1:
        return None
    # In the order of the calls these layers need not be adjacent, and the layers between them are not part of the
    # selection.
    first, last = inside[0], inside[-1]
    values: list[float | None] = [None] * (last + 1 - first)
    for at in inside:
        values[at - first] = layers.now[at]
    name = selection.name if len(inside) > 1 else _name(state, layers.modules[first])
    return Curve(name, SELECTED_ROLE, xs[first : last + 1], values, can_be_smooth=False)


def _only(state: RunState, layers: Layers) -> str:
    """Say what there is where one layer has a gradient: a chart of one point would look empty."""
    norms = short(layers.now[0])
    if layers.first_step != layers.step:
        norms += f" at step {layers.step:,}, {short(layers.then[0])} at step {layers.first_step:,}"
    others = f", and {layers.left_out:,} layers have none" if layers.left_out else ""
    return (
        f"Only {printable(_parameters(state, layers.modules[0]))} has a gradient (norm {norms}){others}. This plot compares "
        "layers; it needs two with a gradient. To see how strong the gradient of a frozen layer would be, unfreeze it (space "
        "on its row); the Norm view has the curve over steps."
    )


def _parameters(state: RunState, index: int) -> str:
    """Return the path of the module's parameter with a gradient if it is the only one, else the module's name."""
    module, norms = state.tree.modules[index], state.tree.norms
    own = range(module.first_parameter, module.first_parameter + module.own_parameters)
    having = [at for at in own if norms is not None and norms[at] is not None]
    return state.tree.parameters[having[0]].path if len(having) == 1 else _name(state, index)


def _words(state: RunState, layers: Layers) -> str:
    known = [norm for norm in layers.now if norm is not None]
    broken = None
    if not isfinite(sum(known)):
        known = list(filter(isfinite, known))
        broken = next((at for at, norm in enumerate(layers.now) if norm is not None and not isfinite(norm)), None)
    words = ""
    if broken is not None:
        count = len(layers.now) - layers.now.count(None) - len(known)
        words = f"NaN or Inf in {count:,}, the first of them {_labelled(state, layers, broken)}. "
    if len(known) > 1:
        low, high = min(known), max(known)
        factor = f", a factor of {_factor(high / low)}" if low > 0 else ""
        words += (
            f"Largest {short(high)} at {_labelled(state, layers, layers.now.index(high))}, "
            f"smallest {short(low)} at {_labelled(state, layers, layers.now.index(low))}{factor}. "
        )
    elif known:
        words += (
            f"{'Only' if broken is None else 'Finite only in'} {_labelled(state, layers, layers.now.index(known[0]))}"
        )
        words += " has a gradient. " if broken is None else ". "
    if layers.left_out:
        words += f"{layers.left_out:,} more without a gradient are left out."
    return words


def _labelled(state: RunState, layers: Layers, at: int) -> str:
    return f"{printable(_name(state, layers.modules[at]))} (layer {at + 1:,})"


def _factor(factor: float) -> str:
    return f"{factor:.1f}" if factor < 100 else f"{factor:,.0f}" if factor < 1e6 else short(factor)
