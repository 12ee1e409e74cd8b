"""Take the figures of a run out of its summary. Pure."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import get_args

from gradtui.protocol.run_summary import RunSummary
from gradtui.protocol.secrets import mask
from gradtui.protocol.summary_memory import PhaseSummary
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, ParameterState, Phase
from gradtui.records.comparison.collector import SeriesCollector
from gradtui.records.comparison.figures import Intervention, Norms, Parameter, Peak, Reported, RunFigures
from gradtui.run.state.parts.bounds import Bound
from gradtui.run.text import listed, plural


def run_figures(name: str, summary: RunSummary, series: SeriesCollector | None, *, is_complete: bool) -> RunFigures:
    """Return the figures of a run.

    Args:
        name: what the run is called, the name of its file.
        summary: of the whole run, or as far as it has come.
        series: what the events of its recording have said; None if there is only the summary.
        is_complete: whether the run has ended.
    """
    totals = {phase: record.seconds for phase, record in _phases(summary) if record.seconds is not None}
    parameters = _with_rows(dict(_parameters(summary)), summary)
    if series is not None:
        loss, total_norm, times = tuple(series.loss), tuple(series.gradient_norm), tuple(series.times)
        norms, compared = tuple(series.norms), _with_rows(series.parameters(), summary) or parameters
        metrics = series.metrics()
    else:
        loss, total_norm, norms = (), _last_norm(summary), _last_norms(summary)
        times = (Reported(summary.steps, summary.steps, totals),) if summary.steps else ()
        compared, metrics = parameters, _last_metrics(summary)
    return RunFigures(
        name=name,
        about=_about(summary),
        steps=summary.steps,
        seconds=summary.seconds,
        is_complete=is_complete,
        has_series=series is not None,
        times=times,
        totals=totals,
        peaks={
            phase: Peak(record.bytes_peak, _bound(record))
            for phase, record in _phases(summary)
            if record.bytes_peak is not None
        },
        held=_held(summary),
        device_peaks=_device_peaks(summary),
        device_times={
            phase: record.device_seconds / record.device_steps
            for phase, record in _phases(summary)
            if record.device_seconds is not None and record.device_steps > 0
        },
        loss=loss,
        gradient_norm=total_norm,
        metrics=metrics,
        norms=norms,
        parameters=compared,
        trained_elements=_trained_elements(parameters),
        findings=summary.findings,
        interventions=tuple(
            Intervention(
                each.step,
                json.dumps({"command": each.command, **each.fields}, sort_keys=True),
                each.text,
                each.receipt.text if each.receipt is not None else None,
            )
            for each in summary.interventions
        ),
        interventions_dropped=summary.interventions_dropped,
    )


def _about(summary: RunSummary) -> dict[str, str | None]:
    return {
        "script": summary.script,
        "arguments": " ".join(mask(summary.arguments)),
        "ranks": _ranks(summary),
        "torch": summary.torch,
        "device": summary.device,
        "memory measured as": summary.ledger,
        "exit code": str(summary.exit_code) if summary.exit_code is not None else None,
        "first NaN or Inf": f"step {summary.bad_step.step}" if summary.bad_step is not None else "none",
        "out of memory": str(len(summary.out_of_memory)),
    }


def _ranks(summary: RunSummary) -> str | None:
    """Return how many ranks a job had, and which of them failed; None for one process."""
    newest = max((each.generation for each in summary.ranks), default=0)
    last = [each for each in summary.ranks if each.generation == newest]
    failed = [str(each.rank) for each in last if each.exit_code != 0]
    if not last:
        return None
    restarts = f", restarted {plural(newest, 'time')}" if newest else ""
    return f"{len(last):,}{restarts}" + (f", not ended in order: {listed(failed)}" if failed else "")


def _phases(summary: RunSummary) -> Iterator[tuple[str, PhaseSummary]]:
    return ((phase.value, summary.phases[phase.value]) for phase in Phase if phase.value in summary.phases)


def _bound(record: PhaseSummary) -> Bound:
    # Summaries of older versions say `peak_exact` only.
    known: Bound = "exact" if record.peak_exact is True else "at least"
    return next((bound for bound in get_args(Bound) if bound == record.peak_bound), known)


def _held(summary: RunSummary) -> dict[str, int | None]:
    ends = [record.bytes_end for _, record in _phases(summary) if record.bytes_end is not None]
    return {name: max(_known(getattr(end, name) for end in ends), default=None) for name in MEMORY_CATEGORIES}


def _device_peaks(summary: RunSummary) -> dict[str, int | None]:
    if summary.device_memory is None:
        return {}
    parts = summary.device_memory.parts
    return {"allocated on the device": parts.allocated_peak, "reserved on the device": parts.reserved_peak}


def _last_norm(summary: RunSummary) -> tuple[tuple[int, float], ...]:
    course = summary.gradient_norm.course
    return ((course.last_step, course.last),) if course.last_step is not None and course.last is not None else ()


def _last_metrics(summary: RunSummary) -> dict[str, tuple[tuple[int, float], ...]]:
    last = ((each.name, each.course.last_step, each.course.last) for each in summary.metrics)
    return {name: ((step, value),) for name, step, value in last if step is not None and value is not None}


def _last_norms(summary: RunSummary) -> tuple[Norms, ...]:
    by_step: dict[int, dict[str, float]] = {}
    for row in summary.parameters:
        if row.gradient_norm_step is not None and row.gradient_norm is not None:
            by_step.setdefault(row.gradient_norm_step, {})[row.path] = row.gradient_norm
    return tuple(Norms(step, tuple(row), array("d", row.values())) for step, row in sorted(by_step.items()))


def _parameters(summary: RunSummary) -> Iterator[tuple[str, Parameter]]:
    for row in summary.parameters:
        elements = row.local_count if row.local_count is not None else math.prod(row.shape)
        yield row.path, Parameter(elements, row.state)


def _with_rows(parameters: dict[str, Parameter], summary: RunSummary) -> dict[str, Parameter]:
    """Return the parameters with the rows of them that train, where commands hold the others frozen."""
    rows = {each.path: (each.count - each.frozen, each.count) for each in summary.freezes.rows}
    return {path: replace(each, rows=rows.get(path)) for path, each in parameters.items()}


def _trained_elements(parameters: Mapping[str, Parameter]) -> int | None:
    if not any(each.state is not None for each in parameters.values()):
        return None
    counts = [each.trained_elements for each in parameters.values() if each.state == ParameterState.TRAINED.value]
    return sum(_known(counts)) if None not in counts else None


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]
