"""Gradient norm by layer, in the order of the tree or of the calls: vanishing or exploding at a glance. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite

from gradtui.state.run_state import RunState
from gradtui.state.series import joint_norm
from gradtui.tui.lines import fit, printable, wrap
from gradtui.tui.plots.curves import curves_request, legend, short
from gradtui.tui.plots.look import SELECTED_ROLE, Curve, Look, Plot
from gradtui.tui.plots.norms import norms_awaited
from gradtui.tui.plots.table import Table
from gradtui.tui.plotting.request import Scale

NOW_ROLE, THEN_ROLE = "curve-1", "curve-3"
_PARAMETERS_A_DRAWING = 5_000
"""All of them are gone through once for so many of them: some 5 ms a drawing."""


@dataclass(frozen=True)
class Layers:
    """Modules that have parameters of their own with a gradient, in order; `now` and `then` are their norms."""

    modules: tuple[int, ...]
    now: tuple[float | None, ...]
    then: tuple[float | None, ...]
    step: int
    first_step: int
    left_out: int
    """Modules with parameters of their own of which none had a gradient."""


def layers_of(state: RunState, *, by_call: bool) -> Layers | None:
    """The layers and their norms in the newest and the oldest row that is kept; None before there is a row."""
    tree, history = state.tree, state.history
    if not history.rows or len(history.rows[-1]) != len(tree.parameters):
        return None
    owners = [place for place, module in enumerate(tree.modules) if module.own_parameters]
    called = tree.reach.called if tree.reach is not None else ()
    if by_call and len(called) == len(tree.modules):
        # What was not called comes last, in the order of the tree.
        owners.sort(key=lambda place: (called[place] <= 0, max(0, called[place]), place))
    now, then = ({place: _norm(state, place, row) for place in owners} for row in (history.rows[-1], history.rows[0]))
    shown = [place for place in owners if now[place] is not None or then[place] is not None]
    return Layers(
        tuple(shown),
        tuple(now[place] for place in shown),
        tuple(then[place] for place in shown),
        history.steps[-1],
        history.steps[0],
        len(owners) - len(shown),
    )


def depth_plot(state: RunState, look: Look, width: int, height: int) -> Plot:
    """The plot of the norms by layer; of many parameters one of some drawings ago, which the legend's step tells."""
    tree = state.tree
    key = tree.version, tree.norms is None, state.ended is None, look, width, height
    drawings = len(tree.parameters) // _PARAMETERS_A_DRAWING
    return look.kept.plot(key, drawings, lambda: _depth_plot(state, look, width, height))


def _depth_plot(state: RunState, look: Look, width: int, height: int) -> Plot:
    layers = layers_of(state, by_call=look.by_call)
    if layers is None or not layers.modules:
        return Plot(tuple(wrap(((norms_awaited(state), "muted"),), width)), None)
    whole = 1.0, float(len(layers.modules))
    ends = look.window.ends(*whole)
    scale: Scale = "linear" if look.other_scale else "log"
    xs = tuple(map(float, range(1, len(layers.modules) + 1)))
    now = Curve(f"step {layers.step:,}", NOW_ROLE, xs, layers.now, can_be_smooth=False)
    then = Curve(f"step {layers.first_step:,}", THEN_ROLE, xs, layers.then, can_be_smooth=False)
    chosen = _chosen(state, look, layers, xs)
    curves = [then, now] if layers.first_step != layers.step else [now]
    entries = [(curve, "") for curve in reversed(curves)]
    if chosen is not None:
        curves.append(chosen)
        entries.append((chosen, short(chosen.values[0]) if len(chosen.values) == 1 else ""))
    above = legend(entries, width)
    below = tuple(fit(line, width) for line in wrap(((_words(state, layers), "muted"),), width)[:3])
    request = curves_request(curves, look, ends, scale, width, height - len(above) - len(below), x_label="layer")
    order = "in the order of the calls" if look.by_call else "in the order of the tree"
    part = f"layers {ceil(ends[0]):,}–{floor(ends[1]):,} · " if ends != whole else ""
    return Plot(above, request, below, whole, f"{part}{order} · {scale}")


def depth_table(state: RunState, look: Look) -> Table:
    """The norms in sight by layer."""
    layers = layers_of(state, by_call=look.by_call)
    if layers is None:
        return Table(("layer", "module", "norm"), ())
    first, last = look.window.ends(1.0, float(max(1, len(layers.modules))))
    columns = ("layer", "module", f"norm_step_{layers.step}", f"norm_step_{layers.first_step}")
    rows = tuple(
        (number, _name(state, module), now, then)
        for number, (module, now, then) in enumerate(zip(layers.modules, layers.now, layers.then), 1)
        if first <= number <= last
    )
    if layers.step == layers.first_step:
        return Table(columns[:3], tuple(row[:3] for row in rows))
    return Table(columns, rows)


def _norm(state: RunState, place: int, row: Sequence[float | None]) -> float | None:
    module = state.tree.modules[place]
    return joint_norm(row[module.first_parameter : module.first_parameter + module.own_parameters])


def _name(state: RunState, place: int) -> str:
    module = state.tree.modules[place]
    return module.path or module.name


def _chosen(state: RunState, look: Look, layers: Layers, xs: Sequence[float]) -> Curve | None:
    """The layers of the selected row, over the others; None where that is none or all of them."""
    selection = look.selection
    if selection is None:
        return None
    first = [state.tree.modules[place].first_parameter for place in layers.modules]
    own = [state.tree.modules[place].own_parameters for place in layers.modules]
    inside = [at for at in range(len(xs)) if first[at] < selection.last and selection.first < first[at] + own[at]]
    if not inside or len(inside) == len(xs) > 1:
        return None
    # In the order of the calls they need not be neighbours: what lies between is not theirs.
    span = range(inside[0], inside[-1] + 1)
    values = [layers.now[at] if at in set(inside) else None for at in span]
    name = selection.name if len(inside) > 1 else _name(state, layers.modules[inside[0]])
    return Curve(name, SELECTED_ROLE, [xs[at] for at in span], values, can_be_smooth=False)


def _words(state: RunState, layers: Layers) -> str:
    """The extremes, and what is left out."""
    measured = [(norm, at) for at, norm in enumerate(layers.now) if norm is not None]
    known = [(norm, at) for norm, at in measured if isfinite(norm)]
    broken = [at for norm, at in measured if not isfinite(norm)]
    words = ""
    if broken:
        words = f"NaN or Inf in {len(broken):,}, the first of them {_labelled(state, layers, broken[0])}. "
    if len(known) > 1:
        (low, low_at), (high, high_at) = min(known), max(known)
        factor = f", a factor of {_factor(high / low)}" if low > 0 else ""
        words += (
            f"Largest {short(high)} at {_labelled(state, layers, high_at)}, "
            f"smallest {short(low)} at {_labelled(state, layers, low_at)}{factor}. "
        )
    elif known:
        words += f"{'Finite only in' if broken else 'Only'} {_labelled(state, layers, known[0][1])}"
        words += ". " if broken else " has a gradient. "
    if layers.left_out:
        words += f"{layers.left_out:,} more without a gradient are left out."
    return words


def _labelled(state: RunState, layers: Layers, at: int) -> str:
    return f"{printable(_name(state, layers.modules[at]))} (layer {at + 1:,})"


def _factor(factor: float) -> str:
    return f"{factor:.1f}" if factor < 100 else f"{factor:,.0f}" if factor < 1e6 else short(factor)
