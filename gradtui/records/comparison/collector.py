"""Collect from the events of a recording what its closing summary does not have: series over the steps of the run."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import ParameterState
from gradtui.records.comparison.figures import NO_NORM, Norms, Parameter, Reported
from gradtui.run.state.run_state import RunState

_MAX_NORMS = 640
"""Steps whose norms of all parameters are kept. Of more, each fifth one stays."""
_THINNED = 5
"""Optimizers that take turns, two or three of them, all keep some of their steps."""

_TRAINED = ParameterState.TRAINED.value


@dataclass
class _History:
    """What the sampled steps have said about one parameter."""

    elements: int
    state: str
    trained: int | None = None
    not_trained: int | None = None


class SeriesCollector:
    """Takes each event after it has been applied to `state`."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._since = 0
        """The first step of the main optimizer, whose loss and norms these are."""
        self._is_taken = False
        """The curves that were taken from the state have the figures of the present event."""
        self.loss: list[tuple[int, float]] = []
        self.gradient_norm: list[tuple[int, float]] = []
        self.times: list[Reported] = []
        self.norms: list[Norms] = []
        self._every, self._passed = 1, 0
        """Each `_every`-th measurement of the norms is kept; those passed over since the last one."""
        self._paths: tuple[int, tuple[str, ...]] = (-1, ())
        """The version of the list of models, and the paths of its parameters."""
        self._unended: dict[str, float] = {}
        self._histories: dict[str, _History] = {}
        self._newest: tuple[Sequence[str], str, Sequence[float | None], Sequence[int | None]] | None = None
        """Of the newest norms: paths and states of the parameters, the norms, and the step of each. A norm says that its
        parameter still trains; what each says counts only once a state changes."""

    def take(self, event: ev.Event) -> None:
        """Take an event."""
        self._is_taken = self._state.main_since != self._since
        if self._is_taken:
            self._begin_again()
        if isinstance(event, ev.Progress):
            self._progress(event)
        elif isinstance(event, ev.GradientsMeasured):
            self._gradients(event)
        elif isinstance(event, ev.StepsMeasured):
            for losses in event.losses:
                if self._is_main(losses.optimizer):
                    self.loss += zip(losses.steps, losses.losses)
            for figures in event.figures:
                self._figures(figures.step, figures.optimizer, figures.loss, figures.total)
        elif isinstance(event, ev.ParametersClassified) and self._is_of_this_list(event, event.states):
            self._classified(event)

    def metrics(self) -> dict[str, tuple[tuple[int, float], ...]]:
        """Return the curves of what the script logs, by name."""
        return {name: tuple(metric.points) for name, metric in self._state.metrics.by_name.items()}

    def parameters(self) -> dict[str, Parameter]:
        """Return what is known of each parameter of any model of the run. A path stands for one parameter."""
        self._take_newest()
        return {
            path: Parameter(
                each.elements,
                each.state,
                (each.trained, each.not_trained) if each.trained is not None else None,
            )
            for path, each in self._histories.items()
        }

    def _is_of_this_list(self, event: ev.Event, values: object) -> bool:
        tree = self._state.tree
        sized = isinstance(values, (str, tuple)) and len(values) == len(tree.parameters)
        return sized and event.listing in (None, tree.listing)

    def _progress(self, event: ev.Progress) -> None:
        for each in event.phases:
            self._unended[each.phase.value] = self._unended.get(each.phase.value, 0.0) + each.seconds
        if event.steps > 0:
            self.times.append(Reported(event.step, event.steps, self._unended))
            self._unended = {}

    def _gradients(self, event: ev.GradientsMeasured) -> None:
        self._figures(event.step, event.optimizer, event.loss, event.total)
        if event.norms is None or not self._is_of_this_list(event, event.norms):
            return
        steps = event.norm_steps or (event.step,) * len(event.norms)
        self._newest = self._present_paths(), self._state.tree.states, event.norms, steps
        self._passed += 1
        if self._passed < self._every:
            return
        self._passed = 0
        values = array("d", (_norm(norm, step == event.step) for norm, step in zip(event.norms, steps)))
        self.norms.append(Norms(event.step, self._present_paths(), values))
        if len(self.norms) > _MAX_NORMS:
            self.norms = self.norms[::-_THINNED][::-1]
            self._every *= _THINNED

    def _figures(self, step: int, optimizer: int, loss: float | None, total: float | None) -> None:
        if not self._is_main(optimizer):
            # Losses of different optimizers are not comparable.
            return
        if loss is not None:
            self.loss.append((step, loss))
        if total is not None:
            self.gradient_norm.append((step, total))

    def _is_main(self, optimizer: int) -> bool:
        main, curves = self._state.main_optimizer, self._state.of_optimizers
        if self._is_taken:
            return False
        return optimizer == main or (main in curves and optimizer in curves[main].former)

    def _begin_again(self) -> None:
        """Take the curves of the optimizer that is the main one now, as far as it has made them without the former one."""
        self._since = since = self._state.main_since
        curves = self._state.of_optimizers.get(self._state.main_optimizer or 0)
        self.loss = [each for each in curves.loss if each[0] >= since] if curves is not None else []
        self.gradient_norm = [each for each in curves.gradient_norm if each[0] >= since] if curves is not None else []

    def _present_paths(self) -> tuple[str, ...]:
        tree = self._state.tree
        if self._paths[0] != tree.version or len(self._paths[1]) != len(tree.parameters):
            self._paths = tree.version, tuple(each.path for each in tree.parameters)
        return self._paths[1]

    def _take_newest(self) -> None:
        """Note which parameters the newest norms show to have trained."""
        if self._newest is None:
            return
        for path, letter, norm, step in zip(*self._newest):
            known = self._histories.get(path)
            if letter == _TRAINED and norm is not None and step is not None and known is not None:
                known.trained = max(known.trained or 0, step)
                if known.not_trained is not None and known.not_trained <= known.trained:
                    known.not_trained = None
        self._newest = None

    def _classified(self, event: ev.ParametersClassified) -> None:
        self._take_newest()
        tree = self._state.tree
        for info, path, letter in zip(tree.parameters, self._present_paths(), event.states):
            if letter == ParameterState.UNKNOWN.value:
                continue
            known = self._histories.get(path)
            if known is None:
                elements = info.local_count if info.local_count is not None else math.prod(info.shape)
                known = self._histories[path] = _History(elements, letter)
            known.state = letter
            if letter == _TRAINED:
                known.trained, known.not_trained = event.step, None
            elif known.not_trained is None:
                known.not_trained = event.step


def _norm(norm: float | None, is_new: bool) -> float:
    return norm if norm is not None and is_new else NO_NORM
