"""Compare what trains in two runs. Pure."""

from __future__ import annotations

import math

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import ParameterState
from gradtui.records.comparison.figures import Parameter, RunFigures
from gradtui.records.comparison.module_groups import topmost

_TRAINED = ParameterState.TRAINED.value
Range = tuple[int, int | None]


@dataclass(frozen=True)
class Training:
    """Whether the parameters of a module train in one run."""

    is_there: bool
    """Whether the run has them."""
    state: str | None = None
    """The letter of their state when the run ends; None if it is unknown."""
    trained_to: Range | None = None
    """The last step that is known to have trained them, and the first later one known not to have. Only for those that train
    no longer."""
    rows: tuple[int, int] | None = None
    """Of its rows, how many train and how many there are; None where all do, or none."""


@dataclass(frozen=True)
class TrainingDifference:
    """A module, or a parameter, that trains in one run and not in the other, or for another time."""

    path: str
    """Empty for everything."""
    tensors: int
    elements: int | None
    a: Training
    b: Training


@dataclass(frozen=True)
class TrainingComparison:
    """What differs in what trains."""

    differences: tuple[TrainingDifference, ...]
    is_known: bool
    """Whether the states of some parameter are known in both runs."""


def compare_training(a: RunFigures, b: RunFigures) -> TrainingComparison:
    """Compare the parameters of two runs by their paths."""
    paths = list(dict.fromkeys((*a.parameters, *b.parameters)))
    if a.has_series != b.has_series or not a.parameters or not b.parameters:
        # A summary has the last models only, a recording all of them.
        paths = [path for path in paths if path in a.parameters and path in b.parameters]
    have_history = a.has_series and b.has_series
    known = {path: (_training(a, path, have_history), _training(b, path, have_history)) for path in paths}
    differing = {path: pair if _do_differ(*pair) else None for path, pair in known.items()}
    found = [
        TrainingDifference(name, len(within), _elements(a, b, within), *pair)
        for name, pair, within in topmost(paths, differing.__getitem__)
        if pair is not None
    ]
    is_known = any(one.state is not None and other.state is not None for one, other in known.values())
    return TrainingComparison(tuple(found), is_known)


def _training(run: RunFigures, path: str, have_history: bool) -> Training:
    parameter = run.parameters.get(path)
    if parameter is None:
        return Training(is_there=False)
    is_past = have_history and parameter.state != _TRAINED
    rows = parameter.rows if parameter.state == _TRAINED else None
    return Training(True, parameter.state, parameter.trained_to if is_past else None, rows)


def _do_differ(a: Training, b: Training) -> bool:
    if not (a.is_there and b.is_there):
        return a.is_there != b.is_there
    if a.state is None or b.state is None:
        return False
    if _TRAINED in (a.state, b.state):
        return a.state != b.state or a.rows != b.rows
    return _are_apart(a.trained_to, b.trained_to)


def _are_apart(a: Range | None, b: Range | None) -> bool:
    """Return whether two runs stopped to train something at different steps, as far as the sampled steps tell."""
    if a is None or b is None:
        return a is not b
    (a_first, a_last), (b_first, b_last) = ((low, math.inf if high is None else high) for low, high in (a, b))
    return a_last <= b_first or b_last <= a_first


def _elements(a: RunFigures, b: RunFigures, paths: tuple[str, ...]) -> int | None:
    counts = [_either(a.parameters.get(path), b.parameters.get(path)) for path in paths]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _either(a: Parameter | None, b: Parameter | None) -> int | None:
    known = [each.elements for each in (a, b) if each is not None and each.elements is not None]
    return max(known, default=None)
