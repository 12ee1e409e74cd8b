"""Compare two runs. Pure: plain data in, plain data out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, Phase
from gradtui.records.comparison.figures import NO_NORM, Norms, Reported, RunFigures
from gradtui.records.comparison.finding_changes import (
    FindingPair,
    InterventionChanges,
    compare_interventions,
    pair_findings,
)
from gradtui.records.comparison.module_groups import groups_of
from gradtui.records.comparison.statistics import MIN_VALUES, Figure, do_overlap, figure_of
from gradtui.records.comparison.training import TrainingComparison, compare_training
from gradtui.run.state.parts.bounds import bound_of_known

_NOT_A_STEP = (Phase.LOAD.value, Phase.EVAL.value)
"""Phases that do not belong to each step: their total counts."""
_NOT_IN_STEP_TIME = (Phase.LOAD.value,)
_PARTS = (10, 4, 2)
"""The end of a run is its last tenth, or quarter, or half."""
_MIN_WINDOW = 10
"""Steps of the window at the end, at least."""


@dataclass(frozen=True)
class Row:
    """A quantity in both runs."""

    name: str
    unit: str
    """`bytes`, `seconds`, `elements`, or empty for a number."""
    a: Figure
    b: Figure

    @property
    def difference(self) -> float | None:
        """B minus A; None if one is unknown or not finite."""
        if self.a.value is None or self.b.value is None or not (self.a.is_finite and self.b.is_finite):
            return None
        return self.b.value - self.a.value

    @property
    def relative(self) -> float | None:
        """The difference as a share of A; None if it is unknown, or A is not above 0."""
        if self.difference is None or self.a.value is None or self.a.value <= 0:
            return None
        return self.difference / self.a.value

    @property
    def overlaps(self) -> bool | None:
        """Whether the ranges between the quartiles of A and B overlap: the difference may then be noise. None if unknown."""
        return do_overlap(self.a, self.b)


@dataclass(frozen=True)
class Comparison:
    """What differs between two runs."""

    a: RunFigures
    b: RunFigures
    about: tuple[tuple[str, str | None, str | None], ...]
    """(what, in A, in B) where they differ."""
    shared_steps: int
    """The steps that both runs have: times, loss and norms are compared in these."""
    window: tuple[int, int]
    """The first and the last step of the part in which loss and norms are compared."""
    findings: tuple[FindingPair, ...]
    interventions: InterventionChanges
    training: TrainingComparison
    trained: Row
    """The elements of the parameters that train when the runs end."""
    peaks: tuple[Row, ...]
    """The peak of the run first, then that of each phase and those of the device."""
    held: tuple[Row, ...]
    """By memory category."""
    times: tuple[Row, ...]
    """Of a step first, then of each phase in a step."""
    are_times_medians: bool
    """Whether `times` are medians; else means."""
    device_times: tuple[Row, ...]
    """Device time of each phase, the mean of the steps that were timed on a CUDA device."""
    totals: tuple[Row, ...]
    """Times over the whole run."""
    loss: Row
    norms: tuple[Row, ...]
    """The norm of all gradients first, then that of each group of modules."""
    metrics: tuple[Row, ...]
    """What the script logs, by name."""


def compare(a: RunFigures, b: RunFigures) -> Comparison:
    """Compare two runs, B with A."""
    shared = min(a.steps, b.steps)
    window = _window(a, b, shared)
    times, are_medians = _times(a, b, shared)
    return Comparison(
        a,
        b,
        tuple((name, a.about.get(name), b.about.get(name)) for name in a.about if a.about[name] != b.about.get(name)),
        shared,
        window,
        pair_findings(a.findings, b.findings),
        compare_interventions(a.interventions, b.interventions),
        compare_training(a, b),
        _row("elements that train", "elements", a.trained_elements, b.trained_elements),
        tuple(_peaks(a, b)),
        tuple(_row(name, "bytes", a.held.get(name), b.held.get(name)) for name in MEMORY_CATEGORIES),
        times,
        are_medians,
        tuple(_row(phase.value, "seconds", *(run.device_times.get(phase.value) for run in (a, b))) for phase in Phase),
        tuple(_totals(a, b)),
        Row("loss", "", _end_of(a.loss, window, newest_decides=True), _end_of(b.loss, window, newest_decides=True)),
        tuple(_norms(a, b, window)),
        tuple(_metrics(a, b, window)),
    )


def _window(a: RunFigures, b: RunFigures, shared: int) -> tuple[int, int]:
    """Return the first and the last step of the shortest end of the run in which both have enough measurements."""
    windows = [(max(1, shared - max(_MIN_WINDOW, math.ceil(shared / part)) + 1), shared) for part in _PARTS]
    kinds = (a.loss, b.loss), (a.gradient_norm, b.gradient_norm)
    measured = [series for kind in kinds for series in kind if all(kind)]

    def has_enough(window: tuple[int, int]) -> bool:
        return all(sum(window[0] <= step <= window[1] for step, _ in series) >= MIN_VALUES for series in measured)

    return next((window for window in windows if has_enough(window)), windows[0])


def _row(name: str, unit: str, a: float | None, b: float | None) -> Row:
    return Row(name, unit, Figure(a), Figure(b))


def _peaks(a: RunFigures, b: RunFigures) -> Iterable[Row]:
    yield Row("peak", "bytes", _peak(a, list(Phase)), _peak(b, list(Phase)))
    for phase in Phase:
        yield Row(phase.value, "bytes", _peak(a, [phase]), _peak(b, [phase]))
    for name in dict.fromkeys((*a.device_peaks, *b.device_peaks)):
        yield _row(name, "bytes", a.device_peaks.get(name), b.device_peaks.get(name))


def _peak(run: RunFigures, phases: Sequence[Phase]) -> Figure:
    peaks = [run.peaks[phase.value] for phase in phases if phase.value in run.peaks]
    if not peaks:
        return Figure()
    # A lower bound of another phase may belong to a higher peak.
    is_all = all(each.bound != "at least" for each in peaks)
    highest = max(peaks, key=lambda each: each.bytes)
    return Figure(highest.bytes, bound=bound_of_known(highest.bound, is_all=is_all))


def _times(a: RunFigures, b: RunFigures, shared: int) -> tuple[tuple[Row, ...], bool]:
    """Return the time of a step and of each phase in it: medians if both runs have enough reports, else means."""
    reports = [_within(run, shared) for run in (a, b)]
    are_medians = all(len(each) >= MIN_VALUES for each in reports)
    phases = [phase.value for phase in Phase if phase.value not in _NOT_A_STEP]
    in_step = [phase.value for phase in Phase if phase.value not in _NOT_IN_STEP_TIME]
    rows = []
    for name, summed in (("step", in_step), *((phase, [phase]) for phase in phases)):
        one, other = (_time_of(each, summed, as_median=are_medians) for each in reports)
        rows.append(Row(name, "seconds", one, other))
    return tuple(rows), are_medians


def _within(run: RunFigures, shared: int) -> list[Reported]:
    # A summary has only totals, which cover all of its steps.
    return [each for each in run.times if each.step <= shared or not run.has_series]


def _time_of(reports: Sequence[Reported], phases: Sequence[str], *, as_median: bool) -> Figure:
    if not reports:
        return Figure()
    spent = [(math.fsum(each.seconds.get(phase, 0.0) for phase in phases), each.steps) for each in reports]
    if as_median:
        return figure_of((seconds / steps, steps) for seconds, steps in spent)
    steps = sum(count for _, count in spent)
    return Figure(math.fsum(seconds for seconds, _ in spent) / steps)


def _totals(a: RunFigures, b: RunFigures) -> Iterable[Row]:
    yield _row("run", "seconds", a.seconds, b.seconds)
    for phase in _NOT_A_STEP:
        yield _row(phase, "seconds", a.totals.get(phase), b.totals.get(phase))


def _end_of(series: Sequence[tuple[int, float]], window: tuple[int, int], *, newest_decides: bool = False) -> Figure:
    """Return the median of the values in a window. NaN or an infinity if the newest value, or half of them, are not finite."""
    values = [value for step, value in series if window[0] <= step <= window[1]]
    finite = [value for value in values if math.isfinite(value)]
    if values and (2 * len(finite) <= len(values) or (newest_decides and not math.isfinite(values[-1]))):
        broken = next(value for value in reversed(values) if not math.isfinite(value))
        return Figure(broken, count=len(values))
    return figure_of((value, 1) for value in finite)


def _metrics(a: RunFigures, b: RunFigures, window: tuple[int, int]) -> Iterable[Row]:
    """Yield the metrics of both runs: as the loss where both have enough values in the window, else their last ones in it."""
    for name in dict.fromkeys((*a.metrics, *b.metrics)):
        both = [run.metrics.get(name, ()) for run in (a, b)]
        within = [sum(window[0] <= step <= window[1] for step, _ in series) for series in both]
        if all(count >= MIN_VALUES for count in within):
            yield Row(name, "", *(_end_of(series, window, newest_decides=True) for series in both))
        else:
            yield _row(name, "", *(_last_until(series, window[1]) for series in both))


def _last_until(series: Sequence[tuple[int, float]], step: int) -> float | None:
    """Return the last value up to a step. A summary has a single value, whatever step it is of."""
    known = [value for at, value in series if at <= step] or [value for _, value in series[:1]]
    return known[-1] if known else None


def _norms(a: RunFigures, b: RunFigures, window: tuple[int, int]) -> Iterable[Row]:
    yield Row("all", "", _end_of(a.gradient_norm, window), _end_of(b.gradient_norm, window))
    measured = [[each for each in run.norms if window[0] <= each.step <= window[1]] for run in (a, b)]
    paths = [
        path for norms in measured for each in norms for path, value in zip(each.paths, each.values) if value != NO_NORM
    ]
    for name, within in groups_of(list(dict.fromkeys(paths))).items():
        yield Row(name, "", *(_end_of(_joint_norms(norms, set(within)), window) for norms in measured))


def _joint_norms(norms: Sequence[Norms], paths: set[str]) -> list[tuple[int, float]]:
    """Return the L2 norm of the gradients of these parameters at each step that measured most of them."""
    found = []
    for each in norms:
        values = [value for path, value in zip(each.paths, each.values) if path in paths and value != NO_NORM]
        if values:
            found.append((each.step, len(values), math.hypot(*values)))
    most = max((count for _, count, _ in found), default=0)
    return [(step, norm) for step, count, norm in found if count == most]
