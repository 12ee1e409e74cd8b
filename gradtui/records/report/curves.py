"""The curves of a report over steps: those of the main optimizer, and of the others that step in turns with it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradtui.dataclass import dataclass
from gradtui.run.state.optimizer_turns import ShownOptimizer, optimizer_turns
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import Series
from gradtui.run.text.optimizers import main_name, main_of
from gradtui.system.printable import printable


@dataclass(frozen=True)
class Curve:
    """A line over steps. Values that are not finite are left out of `points`, and their steps are in `not_finite`."""

    name: str
    points: tuple[tuple[int, float], ...]
    not_finite: tuple[int, ...] = ()


def curve_of(name: str, series: Series) -> Curve:
    """Return the points of a series."""
    points = tuple((step, value) for step, value in series if math.isfinite(value))
    return Curve(name, points, tuple(step for step, value in series if not math.isfinite(value)))


def main_curves(state: RunState) -> tuple[Series, Series]:
    """Return loss and norm of the main optimizer; of those before it too, where the script trains in stages."""
    main = main_of(optimizer_turns(state), state)
    return (main.curves.loss, main.curves.gradient_norm) if main is not None else (state.loss, state.gradient_norm)


def change_of_optimizer(state: RunState) -> list[int]:
    """Return the last step before those of the main optimizer, if another one was the main optimizer before."""
    return [state.main_since - 1] if state.main_since > 1 else []


def _others(state: RunState) -> list[ShownOptimizer]:
    return [each for each in optimizer_turns(state).shown if each.index != state.main_optimizer]


def other_losses(state: RunState) -> Iterator[Curve]:
    """Yield the losses of the other optimizers that step in turns, by their names."""
    for each in _others(state):
        if each.has_own_loss and len(each.curves.loss):
            yield curve_of(printable(each.name), each.curves.loss)


def fact_curves(state: RunState) -> Iterator[tuple[str, Series]]:
    """Yield the curves whose ends are facts, with their labels."""
    loss, norm = main_curves(state)
    name, others = main_name(state), _others(state)
    of = f" of {name}" if name else ""
    own = [each for each in others if each.has_own_loss]
    yield f"Loss{of if own else ''}", loss
    for each in own:
        yield f"Loss of {printable(each.name)}", each.curves.loss
    yield f"Gradient norm{of}", norm
    for each in others:
        yield f"Gradient norm of {printable(each.name)}", each.curves.gradient_norm


def total_norms(state: RunState) -> Iterator[Curve]:
    """Yield the total norms, that of the main optimizer first."""
    name = main_name(state)
    yield curve_of(f"gradient norm{f' of {name}' if name else ''}", main_curves(state)[1])
    for each in _others(state):
        yield curve_of(f"gradient norm of {printable(each.name)}", each.curves.gradient_norm)
