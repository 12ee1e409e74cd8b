"""The gradient norm of each layer; for a large model, computed in parts over several drawings. Pure.

A layer is a module with parameters of its own. There may be 50,000 of them, and processing all takes about 20 ms. The plot then
shows a row of norms that is some drawings old, while the next row is processed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, compress
from typing import TYPE_CHECKING, Literal

from gradtui.dataclass import dataclass
from gradtui.run.state.norms.shown_norms import shown_norms
from gradtui.run.state.over_steps.markers import model_breaks
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import joint_norm
from gradtui.run.state.tree_state import TreeState
from gradtui.tui.plots.kinds import kinds_of

if TYPE_CHECKING:
    from gradtui.tui.plots.options import Plot

AT_ONCE = 5_000
"""The number of layers processed per drawing."""

LayerOrder = Literal["kind", "tree", "calls"]
ORDERS: tuple[LayerOrder, ...] = ("kind", "tree", "calls")
"""Layers of one kind together, or all in the order of the tree, or of the calls."""


@dataclass(frozen=True)
class KindPart:
    """The layers of one kind from the position `start` on; the layers without a `name` are of various kinds."""

    start: int
    name: str


@dataclass(frozen=True, eq=False)
class Layers:
    """The layers in which a parameter has a gradient, in order; `now` and `then` are their norms at `step` and `first_step`."""

    modules: tuple[int, ...]
    now: tuple[float | None, ...]
    then: tuple[float | None, ...]
    step: int
    first_step: int
    left_out: int
    """The number of layers left out because none of their own parameters had a gradient."""
    kinds: tuple[KindPart, ...] = ()
    """Empty if the layers are not in the order of their kinds."""


_Work = Iterator[Layers | None]
"""The layers at last; before that None for each part that was processed."""


class KeptLayers:
    """Caches the layers processed last, and the progress of the next ones, for one structure and order at a time."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._of: object = None
        self._known: Layers | None = None
        self._work: _Work | None = None
        self._plot: tuple[object, Plot] | None = None
        self._owners: tuple[object, _Owners] | None = None

    def plot(self, of: object, make: Callable[[], Plot]) -> Plot:
        """Return the cached plot if it was made for an equal `of`, else make it."""
        if self._plot is None or self._plot[0] != of:
            self._plot = of, make()
        return self._plot[1]

    def layers(self, state: RunState, order: LayerOrder = "kind") -> Layers | None:
        """Return the newest layers that are ready; None before there is a row of norms.

        The first time, and once the run has ended, they are those of the newest row.
        """
        if not has_norms(state):
            self._of = self._known = self._work = None
            return None
        of = state.tree.version, order, state.ended is None
        if self._known is None or of != self._of:
            self._of, self._work = of, None
            self._known = _at_last(_collect(state, self._ordered(state.tree, order), self._at_once))
        elif self._work is not None or self._known.step != shown_norms(state).history.steps[-1]:
            self._work = self._work or _collect(state, self._ordered(state.tree, order), self._at_once)
            layers = next(self._work)
            if layers is not None:
                self._known, self._work = layers, None
        return self._known

    def _ordered(self, tree: TreeState, order: LayerOrder) -> _Owners:
        """Return the layers in order. The kinds of 50,000 modules take a while, and stay the same as long as the modules."""
        if order != "kind":
            return _owners(tree, order)
        if self._owners is None or self._owners[0] != tree.version:
            self._owners = tree.version, _owners(tree, order)
        return self._owners[1]


def has_norms(state: RunState) -> bool:
    """Whether there is a row of norms of the present models."""
    rows = shown_norms(state).history.rows
    return bool(rows) and len(rows[-1]) == len(state.tree.parameters)


def layers_of(state: RunState, order: LayerOrder = "kind") -> Layers | None:
    """Return the layers and their norms in the newest and the oldest kept row; None before there is a row."""
    return _at_last(_collect(state, _owners(state.tree, order), AT_ONCE)) if has_norms(state) else None


def _collect(state: RunState, ordered: _Owners, at_once: int) -> _Work:
    """Process the layers, with a pause after every `at_once` of them. The state is read once, at the beginning."""
    tree, history = state.tree, shown_norms(state).history
    # Norms of models that came before were those of another loss.
    first = min(bisect_right(history.steps, max(model_breaks(state), default=-1)), len(history.steps) - 1)
    modules, rows = tree.modules, (history.rows[-1], history.rows[first])
    step, first_step = history.steps[-1], history.steps[first]
    owners = ordered.modules
    norms: tuple[list[float | None], list[float | None]] = ([], [])
    for start in range(0, len(owners), at_once):
        if start:
            yield None
        spans = [
            slice(modules[index].first_parameter, modules[index].first_parameter + modules[index].own_parameters)
            for index in owners[start : start + at_once]
        ]
        for joined, row in zip(norms, rows):
            joined += [joint_norm(row[span]) for span in spans]
    now, then = norms
    shown = [one is not None or other is not None for one, other in zip(now, then)]
    indices = tuple(compress(owners, shown))
    if len(owners) > at_once:
        # The drawing that receives the layers also makes their plot, so this one stops here.
        yield None
    yield Layers(
        indices,
        tuple(compress(now, shown)),
        tuple(compress(then, shown)),
        step,
        first_step,
        len(owners) - len(indices),
        _shown_kinds(ordered.kinds, shown),
    )


def _shown_kinds(kinds: Sequence[KindPart], shown: Sequence[bool]) -> tuple[KindPart, ...]:
    """Return the kinds of which layers are shown, with their positions among these."""
    before = [0, *accumulate(shown)]
    parts = {before[kind.start]: KindPart(before[kind.start], kind.name) for kind in kinds}
    # Of kinds without a shown layer, which begin at the same place, the last one counts.
    return tuple(part for part in parts.values() if part.start < before[-1])


@dataclass(frozen=True)
class _Owners:
    """The layers in their order, and where each kind begins."""

    modules: Sequence[int]
    kinds: tuple[KindPart, ...] = ()


def _owners(tree: TreeState, order: LayerOrder) -> _Owners:
    if order == "kind":
        kinds = kinds_of(tree.modules)
        starts = accumulate((len(kind.modules) for kind in kinds), initial=0)
        parts = tuple(KindPart(start, kind.name) for start, kind in zip(starts, kinds))
        return _Owners([index for kind in kinds for index in kind.modules], parts)
    owners = [index for index, module in enumerate(tree.modules) if module.own_parameters]
    called = tree.gradient_flow.called if tree.gradient_flow is not None else ()
    if order == "calls" and len(called) == len(tree.modules):
        # Modules that were not called come last, in the order of the tree, because the sort is stable.
        last = max(called, default=0) + 1
        ranks = [index if index > 0 else last for index in called]
        owners.sort(key=ranks.__getitem__)
    return _Owners(owners)


def _at_last(work: _Work) -> Layers:
    return next(layers for layers in work if layers is not None)
