"""Take the figures of a run out of its summary. A summary in a file may be anything: what has another type is unknown. Pure."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from gradtui.comparison.collector import SeriesCollector
from gradtui.comparison.figures import FoundProblem, Intervention, Norms, Parameter, Peak, Reported, RunFigures
from gradtui.protocol.secrets import mask
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, ParameterState, Phase
from gradtui.text import listed, plural

_MAX = 2**63
"""No number of a run is as large."""
_DEVICE_PEAKS = {"allocated_peak": "allocated on the device", "reserved_peak": "reserved on the device"}
_NOT_OF_THE_COMMAND = frozenset({"step", "seconds", "text", "origin", "trainable", "skipped", "parameters", "receipt"})
"""The fields of an intervention that the same command can have differently."""

T = TypeVar("T")


def run_figures(
    name: str, summary: Mapping[str, Any], series: SeriesCollector | None, *, is_complete: bool
) -> RunFigures:
    """Return the figures of a run.

    Args:
        name: what the run is called, the name of its file.
        summary: as `export.summary.summarise` returns it.
        series: what the events of its recording have said; None if there is only the summary.
        is_complete: whether the run has ended.
    """
    totals = {
        phase: seconds for phase, record in _phases(summary) if (seconds := _number(record.get("seconds"))) is not None
    }
    steps = _whole(summary.get("steps")) or 0
    if series is not None:
        loss, total_norm, times = tuple(series.loss), tuple(series.gradient_norm), tuple(series.times)
        norms, parameters = tuple(series.norms), series.parameters() or _parameters(summary)
    else:
        loss, total_norm, norms = (), _last_norm(summary), _last_norms(summary)
        times = (Reported(steps, steps, totals),) if steps else ()
        parameters = _parameters(summary)
    return RunFigures(
        name=name,
        about=_about(summary),
        steps=steps,
        seconds=_number(summary.get("seconds")),
        is_complete=is_complete,
        has_series=series is not None,
        times=times,
        totals=totals,
        peaks=_peaks(summary),
        held=_held(summary),
        device_peaks=_device_peaks(summary),
        device_times=_device_times(summary),
        loss=loss,
        gradient_norm=total_norm,
        norms=norms,
        parameters=parameters,
        trained_elements=_trained_elements(_parameters(summary)),
        findings=tuple(_findings(summary)),
        interventions=tuple(_interventions(summary)),
        interventions_dropped=_whole(summary.get("interventions_dropped")) or 0,
    )


def _about(summary: Mapping[str, Any]) -> dict[str, str | None]:
    bad = summary.get("bad_step")
    bad_step = _whole(bad.get("step")) if isinstance(bad, dict) else None
    exit_code = _whole(summary.get("exit_code"))
    return {
        "script": _text(summary.get("script")),
        "arguments": " ".join(mask(each for each in _list(summary.get("arguments")) if isinstance(each, str))),
        "ranks": _ranks(summary),
        "torch": _text(summary.get("torch")),
        "device": _text(summary.get("device")),
        "memory measured as": _text(summary.get("ledger")),
        "exit code": str(exit_code) if exit_code is not None else None,
        "first NaN or Inf": f"step {bad_step}" if bad_step is not None else "none",
        "out of memory": str(len(_list(summary.get("out_of_memory")))),
    }


def _ranks(summary: Mapping[str, Any]) -> str | None:
    """Return how many ranks a job had, and which of them failed; None for one process."""
    ranks = [each for each in _list(summary.get("ranks")) if isinstance(each, dict)]
    newest = max((_whole(each.get("generation")) or 0 for each in ranks), default=0)
    last = [each for each in ranks if (_whole(each.get("generation")) or 0) == newest]
    failed = [str(each.get("rank")) for each in last if _whole(each.get("exit_code")) != 0]
    if not last:
        return None
    restarts = f", restarted {plural(newest, 'time')}" if newest else ""
    return f"{len(last):,}{restarts}" + (f", not ended in order: {listed(failed)}" if failed else "")


def _phases(summary: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    phases = summary.get("phases")
    for phase in Phase:
        record = phases.get(phase.value) if isinstance(phases, dict) else None
        if isinstance(record, dict):
            yield phase.value, record


def _peaks(summary: Mapping[str, Any]) -> dict[str, Peak]:
    return {
        phase: Peak(peak, record.get("peak_exact") is True)
        for phase, record in _phases(summary)
        if (peak := _whole(record.get("bytes_peak"))) is not None
    }


def _held(summary: Mapping[str, Any]) -> dict[str, int | None]:
    ends = [end for _, record in _phases(summary) if isinstance(end := record.get("bytes_end"), dict)]
    return {name: max(_known(_whole(end.get(name)) for end in ends), default=None) for name in MEMORY_CATEGORIES}


def _device_peaks(summary: Mapping[str, Any]) -> dict[str, int | None]:
    memory = summary.get("device_memory")
    if not isinstance(memory, dict):
        return {}
    return {words: _whole(memory.get(name)) for name, words in _DEVICE_PEAKS.items()}


def _device_times(summary: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for phase, record in _phases(summary):
        seconds, steps = _number(record.get("device_seconds")), _whole(record.get("device_steps"))
        if seconds is not None and steps is not None and steps > 0:
            found[phase] = seconds / steps
    return found


def _last_norm(summary: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    norm = summary.get("gradient_norm")
    if not isinstance(norm, dict):
        return ()
    step, last = _whole(norm.get("last_step")), _number(norm.get("last"))
    return ((step, last),) if step is not None and last is not None else ()


def _last_norms(summary: Mapping[str, Any]) -> tuple[Norms, ...]:
    by_step: dict[int, dict[str, float]] = {}
    for row in _rows(summary, "parameters"):
        path, step = _text(row.get("path")), _whole(row.get("gradient_norm_step"))
        norm = _number(row.get("gradient_norm"))
        if path is not None and step is not None and norm is not None:
            by_step.setdefault(step, {})[path] = norm
    return tuple(Norms(step, tuple(row), array("d", row.values())) for step, row in sorted(by_step.items()))


def _parameters(summary: Mapping[str, Any]) -> dict[str, Parameter]:
    found = {}
    for row in _rows(summary, "parameters"):
        path, local = _text(row.get("path")), _whole(row.get("local_count"))
        shape = [_whole(size) for size in _list(row.get("shape"))]
        elements = local if local is not None else math.prod(_known(shape)) if None not in shape else None
        if path is not None:
            found[path] = Parameter(elements, _text(row.get("state")))
    return found


def _trained_elements(parameters: Mapping[str, Parameter]) -> int | None:
    if not any(each.state is not None for each in parameters.values()):
        return None
    counts = [each.elements for each in parameters.values() if each.state == ParameterState.TRAINED.value]
    return sum(_known(counts)) if None not in counts else None


def _findings(summary: Mapping[str, Any]) -> Iterator[FoundProblem]:
    for row in _rows(summary, "findings"):
        rule = _text(row.get("rule"))
        if rule is not None:
            yield FoundProblem(
                rule,
                _text(row.get("level")) or "",
                _text(row.get("status")) or "",
                _text(row.get("message")) or "",
                tuple(path for path in _list(row.get("paths")) if isinstance(path, str)),
                _whole(row.get("first_step")),
                _whole(row.get("cleared_step")),
            )


def _interventions(summary: Mapping[str, Any]) -> Iterator[Intervention]:
    for row in _rows(summary, "interventions"):
        receipt = row.get("receipt")
        words = {name: value for name, value in row.items() if name not in _NOT_OF_THE_COMMAND}
        yield Intervention(
            _whole(row.get("step")),
            json.dumps(words, sort_keys=True, default=str),
            _text(row.get("text")) or "",
            _text(receipt.get("text")) if isinstance(receipt, dict) else None,
        )


def _rows(summary: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    for row in _list(summary.get(name)):
        if isinstance(row, dict):
            yield row


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX
    return value if is_number else None  # type: ignore[return-value]


def _number(value: object) -> float | None:
    if isinstance(value, float):
        return value
    whole = _whole(value)
    return float(whole) if whole is not None else None


def _known(values: Any) -> list[Any]:
    return [value for value in values if value is not None]
