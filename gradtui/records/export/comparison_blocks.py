"""The content of a comparison in words, for each format that people read: titles, lines and tables. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.run_summary import Finding
from gradtui.protocol.vocabulary import ParameterState
from gradtui.records.comparison import (
    MAX_GROUPS,
    Comparison,
    Figure,
    FindingPair,
    Intervention,
    Row,
    RunFigures,
    Training,
    TrainingDifference,
    Verdict,
)
from gradtui.run.state.findings import LEVELS
from gradtui.run.state.parts.bounds import Bound
from gradtui.run.text import DASH, STATE_WORDS, bounded
from gradtui.run.text.rows import rows_that_train
from gradtui.run.text.units import number_text, plural, seconds_text, short_bytes, three_digits

_OVERLAP = "~"
_OVERLAP_NOTE = f"{_OVERLAP} the middle halves of A and B overlap: the difference may be noise"
_OTHER_LOAD = "other load on the machine can shift all times of a run, which the quartiles do not show"
_SECOND_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_MAX_LINES = 20
"""Lines of one kind that are listed; the others are counted."""
_LARGE_RATIO = 10.0


@dataclass(frozen=True)
class Line:
    """A line of text, with what stands before it: `new`, `gone`, `only in A`."""

    label: str
    text: str
    further: str | None = None
    """What follows from it, if anything."""


@dataclass(frozen=True)
class Block:
    """A part of a comparison with a title."""

    title: str
    lines: tuple[Line, ...] = ()
    rows: tuple[tuple[str, str, str, str], ...] = ()
    """Name, A, B, change."""
    notes: tuple[str, ...] = ()


def blocks(comparison: Comparison, verdicts: Sequence[Verdict]) -> Iterator[Block]:
    """Yield the parts of a comparison in the order in which they are read."""
    if verdicts:
        yield Block("thresholds", tuple(_verdict_line(each) for each in verdicts))
    yield Block("runs", tuple(_run_lines(comparison)))
    yield Block("findings", tuple(_finding_lines(comparison.findings)))
    yield Block("changes", tuple(_change_lines(comparison)))
    trained = (_cells(comparison.trained),)
    yield Block("what trains", tuple(_training_lines(comparison)), trained)
    yield _memory(comparison)
    yield Block("memory by category", rows=_rows(comparison.held), notes=(_HELD_NOTE,))
    yield _times(comparison)
    yield _norms(comparison)
    if comparison.metrics:
        yield _metrics(comparison)


_HELD_NOTE = "the most that is held at the end of a phase, as last measured"


def _run_lines(comparison: Comparison) -> Iterator[Line]:
    for label, run in (("A", comparison.a), ("B", comparison.b)):
        words = [
            run.about.get("script"),
            plural(run.steps, "step"),
            seconds_text(run.seconds).strip(),
            _what_is_missing(run),
        ]
        yield Line(label, run.name, ", ".join(word for word in words if word))
    for name, one, other in comparison.about:
        yield Line("differs", f"{name}: A: {_or_dash(one)}, B: {_or_dash(other)}")
    if comparison.a.steps != comparison.b.steps:
        shared = plural(comparison.shared_steps, "step")
        yield Line(
            "compared", f"time, loss and gradient norms in the first {shared}, which both have; the rest in all steps"
        )


def _what_is_missing(run: RunFigures) -> str | None:
    if not run.is_complete:
        return "the run has not ended, or was killed"
    return None if run.has_series else "from a summary: no loss, last values instead of medians"


def _or_dash(text: str | None) -> str:
    return DASH if text is None else text or "none"


def _finding_lines(pairs: Sequence[FindingPair]) -> Iterator[Line]:
    if not pairs:
        yield Line("", "none in A and in B")
    for change in ("new", "gone", "both"):
        found = sorted((pair for pair in pairs if pair.change == change), key=_urgency)
        for pair in found[:_MAX_LINES]:
            yield _finding_line(change, pair)
        if len(found) > _MAX_LINES:
            yield Line(change, f"{len(found) - _MAX_LINES:,} more")


def _urgency(pair: FindingPair) -> tuple[bool, bool, int]:
    """Sort findings that are still so first, then those that are confirmed, then by level."""
    shown = _shown(pair)
    level = next((at for at, level in enumerate(LEVELS) if level.value == shown.level), len(LEVELS))
    return shown.cleared_step is not None, shown.status != "confirmed", level


def _shown(pair: FindingPair) -> Finding:
    shown = pair.a if pair.b is None or pair.change == "gone" else pair.b
    assert shown is not None
    return shown


def _finding_line(change: str, pair: FindingPair) -> Line:
    shown = _shown(pair)
    other = pair.b if shown is pair.a else pair.a
    text = f"{shown.rule} {shown.level}{_standing(shown)}: {shown.message}"
    if other is None or change == "both":
        return Line(change, text)
    words = {"new": "in A it was", "gone": "in B it is"}[change]
    standing = _standing(other).strip(" ,") or "confirmed"
    return Line(change, text, f"{words} {standing}")


def _standing(finding: Finding) -> str:
    if finding.cleared_step is not None:
        return f", over after step {finding.cleared_step:,}"
    return "" if finding.status == "confirmed" else f", {finding.status}"


def _change_lines(comparison: Comparison) -> Iterator[Line]:
    found = comparison.interventions
    if not (found.only_a or found.only_b or found.both):
        yield Line("", "none in A and in B")
    for label, changes in (("only in A", found.only_a), ("only in B", found.only_b), ("in both", found.both)):
        for each in changes[:_MAX_LINES]:
            yield Line(label, _change_text(each), each.receipt if label != "in both" else None)
        if len(changes) > _MAX_LINES:
            yield Line(label, f"{len(changes) - _MAX_LINES:,} more")
    for label, run in (("A", comparison.a), ("B", comparison.b)):
        if run.interventions_dropped:
            yield Line(label, f"{plural(run.interventions_dropped, 'earlier change')} not known any more")


def _change_text(change: Intervention) -> str:
    return f"step {change.step:,}: {change.text}" if change.step is not None else change.text


def _training_lines(comparison: Comparison) -> Iterator[Line]:
    training = comparison.training
    if not training.differences:
        unknown = f"{DASH} (no sampled step of both runs has said it)"
        yield Line("", "the same parameters" if training.is_known else unknown)
    for each in training.differences[:_MAX_LINES]:
        yield Line("differs", _difference_text(each))
    if len(training.differences) > _MAX_LINES:
        yield Line("differs", f"{len(training.differences) - _MAX_LINES:,} more")


def _difference_text(difference: TrainingDifference) -> str:
    size = plural(difference.tensors, "tensor")
    if difference.elements is not None:
        size += f", {plural(difference.elements, 'element')}"
    where = difference.path or "everything"
    return f"{where} ({size}): A: {_training_text(difference.a)}, B: {_training_text(difference.b)}"


def _training_text(training: Training) -> str:
    if not training.is_there:
        return "not there"
    if training.trained_to is not None:
        return f"trained until step {_range_text(*training.trained_to)}"
    if training.rows is not None:
        return rows_that_train(*training.rows)
    known = {each.value for each in ParameterState}
    if training.state is None or training.state not in known:
        return DASH
    return STATE_WORDS[ParameterState(training.state)]


def _range_text(first: int, last: int | None) -> str:
    if last is None or last - first <= 1:
        return f"{first:,}"
    return f"{first:,}{DASH}{last - 1:,}"


_BOUNDS: dict[Bound, str] = {
    "at least": "≥ a lower bound: the peak within a phase is measured in some steps only",
    "at most": "≤ an upper bound: the sum of the peaks of several devices",
    "about": "≈ the sum of the peaks of several devices, of some steps only",
}


def _memory(comparison: Comparison) -> Block:
    bounds = {figure.bound for row in comparison.peaks for figure in (row.a, row.b)}
    notes = [words for bound, words in _BOUNDS.items() if bound in bounds]
    return Block("peak memory by phase", rows=_rows(comparison.peaks), notes=tuple(notes))


def _times(comparison: Comparison) -> Block:
    medians = (
        "host time of a step, median with the quartiles"
        if comparison.are_times_medians
        else "host time of a step, mean"
    )
    totals = {"run": "whole run", "load": "load, in all", "eval": "eval, in all"}
    cells = [_cells(row) for row in comparison.times if _is_known(row)]
    cells += [_cells(row, f"{row.name}, device") for row in comparison.device_times if _is_known(row)]
    cells += [_cells(row, totals[row.name]) for row in comparison.totals if _is_known(row)]
    return Block("time", rows=tuple(cells), notes=(medians, *_overlap_notes(comparison.times), _OTHER_LOAD))


def _norms(comparison: Comparison) -> Block:
    groups = comparison.norms[1:]
    shown = sorted(groups, key=lambda row: -_size_of_change(row))[:MAX_GROUPS]
    rows = [row for row in groups if row in shown]
    first, last = comparison.window
    notes = [f"median in steps {first:,}{DASH}{last:,}, with the quartiles"]
    if len(rows) < len(groups):
        notes.append(f"{len(groups) - len(rows):,} more modules with --format json")
    cells = (
        _cells(comparison.loss),
        _cells(comparison.norms[0], "gradient norm"),
        *(_cells(row, f"  {row.name}") for row in rows),
    )
    return Block(
        "loss and gradient norms", rows=cells, notes=(*notes, *_overlap_notes((comparison.loss, *comparison.norms)))
    )


def _metrics(comparison: Comparison) -> Block:
    rows = comparison.metrics[:_MAX_LINES]
    notes = ["the last value in the steps that both have, or the median at the end where there are several"]
    if len(rows) < len(comparison.metrics):
        notes.append(f"{len(comparison.metrics) - len(rows):,} more metrics with --format json")
    return Block("metrics", rows=tuple(map(_cells, rows)), notes=(*notes, *_overlap_notes(rows)))


def _size_of_change(row: Row) -> float:
    # What one run does not have differs most.
    return abs(row.relative) if row.relative is not None else math.inf


def _overlap_notes(rows: Sequence[Row]) -> tuple[str, ...]:
    return (_OVERLAP_NOTE,) if any(_is_in_noise(row) for row in rows) else ()


def _is_in_noise(row: Row) -> bool:
    return bool(row.overlaps) and row.difference != 0


def _is_known(row: Row) -> bool:
    """Return whether a row says something: a phase that did not occur does not."""
    return any(figure.value not in (None, 0) for figure in (row.a, row.b))


def _rows(rows: Sequence[Row]) -> tuple[tuple[str, str, str, str], ...]:
    return tuple(_cells(row) for row in rows if _is_known(row))


def _cells(row: Row, name: str | None = None) -> tuple[str, str, str, str]:
    words = (name or row.name).replace("_", " ") if row.unit else name or row.name
    return words, figure_text(row.a, row.unit), figure_text(row.b, row.unit), change_text(row)


def figure_text(figure: Figure, unit: str) -> str:
    """Format a value, with its quartiles behind it if they are known: `66.1 ms (61.0–70.2)`."""
    if figure.value is None:
        return DASH
    text, low, high = (_value_text(each, unit, figure.value) for each in (figure.value, figure.low, figure.high))
    text = bounded(figure.bound, text, " ")
    if figure.low is None or figure.high is None:
        return f"{text} ({plural(figure.count, 'value')})" if figure.count else text
    if unit == "seconds":
        low, high = low.split(" ")[0], high.split(" ")[0]
    return f"{text} ({low}{DASH}{high})"


def _value_text(value: float | None, unit: str, scale: float) -> str:
    if value is None:
        return DASH
    if not math.isfinite(value):
        return number_text(value).strip()
    if unit == "bytes":
        return short_bytes(round(value))
    if unit == "seconds":
        if abs(scale) >= 60:
            return seconds_text(value).strip()
        name, size = next((each for each in _SECOND_UNITS if abs(scale) >= each[1]), _SECOND_UNITS[-1])
        return f"{three_digits(value / size)} {name}"
    return f"{value:,.0f}" if unit in ("elements", "findings") else number_text(value).strip()


def change_text(row: Row) -> str:
    """Format the difference: `+4.3 %`, `×12`, `same`, with a sign behind it if it may be noise; a dash if it is unknown.

    Bytes stand before the share: `+1.2 MiB, +0.4 %`.
    """
    if row.difference is None:
        return DASH
    if row.difference == 0:
        return "same"
    sign = "+" if row.difference > 0 else "-"
    absolute = f"{sign}{_value_text(abs(row.difference), row.unit, abs(row.difference))}"
    if row.relative is None:
        text = absolute
    else:
        text = _share_text(row.relative)
        text = f"{absolute}, {text}" if row.unit == "bytes" else text
    return f"{text} {_OVERLAP}" if _is_in_noise(row) else text


def _share_text(share: float) -> str:
    if share + 1 >= _LARGE_RATIO:
        return f"×{number_text(share + 1).strip()}"
    if abs(share) < 0.0005:
        return "<0.1 %"
    return f"{share * 100:+.0f} %" if abs(share) >= 0.0995 else f"{share * 100:+.1f} %"


def _verdict_line(verdict: Verdict) -> Line:
    row, kind = verdict.row, verdict.threshold.kind
    one, other = (figure_text(figure, row.unit) for figure in (row.a, row.b))
    text = f"{verdict.threshold.text}: {other}" if kind == "value" else f"{verdict.threshold.text}: {one} to {other}"
    if kind != "value":
        text += f", {change_text(row)}"
    further = "unknown, which counts as exceeded" if verdict.found is None else None
    return Line("EXCEEDED" if verdict.exceeded else "ok", text, further)
