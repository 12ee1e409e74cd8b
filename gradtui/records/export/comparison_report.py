"""A comparison of two runs in the formats of `gradtui compare`: text, JSON, Markdown. Pure.

Names and messages come from scripts and files, and may contain anything.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from gradtui.protocol.json_objects import to_object
from gradtui.protocol.json_text import to_document
from gradtui.protocol.run_summary import Finding
from gradtui.records.comparison.compare import Comparison, Row
from gradtui.records.comparison.figures import Intervention, RunFigures
from gradtui.records.comparison.finding_changes import FindingPair
from gradtui.records.comparison.statistics import Figure
from gradtui.records.comparison.thresholds import Verdict
from gradtui.records.comparison.training import TrainingDifference
from gradtui.records.export.comparison_blocks import Block, Line, blocks
from gradtui.system.printable import printable

WIDTH = 80
_NAME_CELLS = 20
SCHEMA = 1

_OF_A_FINDING = ("rule", "level", "status", "message", "paths", "first_step", "cleared_step")
"""The values of a finding that the JSON of a comparison has."""


def comparison_report(comparison: Comparison, verdicts: Sequence[Verdict], format_name: str) -> str:
    """Return a comparison in a format: `text`, `json` or `markdown`; without control characters other than line ends."""
    if format_name == "json":
        # Any character but those of ASCII that are printable is escaped.
        lines: Sequence[str] = [to_document(_data(comparison, verdicts))]
    else:
        make = _text if format_name == "text" else _markdown
        lines = [line for block in blocks(comparison, verdicts) for line in make(block)][:-1]
    return "".join(f"{line}\n" for line in lines)


def _clean(text: str) -> str:
    """Remove control characters, and characters that no encoding has."""
    return printable(text.encode(errors="replace").decode())


def _text(block: Block) -> Iterator[str]:
    yield block.title.upper()
    for line in block.lines:
        yield from _wrapped(line)
    widths = [max(len(cell) for cell in column) for column in zip(*block.rows)]
    if block.rows:
        yield _row_text("", ("A", "B", "change"), widths)
    for name, *cells in block.rows:
        name = _clean(name)
        if len(name) > _NAME_CELLS:
            yield from textwrap.wrap(name, WIDTH, initial_indent="  ", subsequent_indent="    ")
            name = ""
        yield _row_text(name, cells, widths)
    for note in block.notes:
        yield from _wrapped(Line("", note))
    yield ""


def _row_text(name: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    one, other, change = cells
    return f"  {name:<{_NAME_CELLS}}  {one:<{widths[1]}}  {other:<{widths[2]}}  {change}".rstrip()


def _wrapped(line: Line) -> Iterator[str]:
    start = f"  {line.label}: " if line.label else "  "
    yield from textwrap.wrap(_clean(line.text), WIDTH, initial_indent=start, subsequent_indent="    ") or [
        start.rstrip()
    ]
    if line.further:
        yield from textwrap.wrap(_clean(line.further), WIDTH, initial_indent="    ", subsequent_indent="    ")


def _markdown(block: Block) -> Iterator[str]:
    yield f"### {block.title.capitalize()}"
    yield ""
    for line in block.lines:
        label = f"**{line.label}:** " if line.label else ""
        further = f" ({_escaped(line.further)})" if line.further else ""
        yield f"- {label}{_escaped(line.text)}{further}"
    if block.rows:
        if block.lines:
            yield ""
        yield "| | A | B | change |"
        yield "|---|---|---|---|"
        for row in block.rows:
            yield f"| {' | '.join(_escaped(cell.strip()) for cell in row)} |"
    for note in block.notes:
        yield ""
        yield _escaped(note)
    yield ""


def _escaped(text: str) -> str:
    """Escape what Markdown, and HTML in it, would take for markup; `@` and `#`, by which GitHub refers to people and issues."""
    escaped = re.sub(r"([\\`*_\[\]|~>])", r"\\\1", _clean(text).replace("&", "&amp;").replace("<", "&lt;"))
    return re.sub(r"([@#])", "\\1\N{ZERO WIDTH NON-JOINER}", escaped)


def _data(comparison: Comparison, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    pairs, changes = comparison.findings, comparison.interventions
    return {
        "schema": SCHEMA,
        "a": _run(comparison.a),
        "b": _run(comparison.b),
        "differs": [{"what": what, "a": one, "b": other} for what, one, other in comparison.about],
        "shared_steps": comparison.shared_steps,
        "window": list(comparison.window),
        "findings": {
            change: [_pair(pair) for pair in pairs if pair.change == change] for change in ("new", "gone", "both")
        },
        "interventions": {
            "only_a": list(map(_intervention, changes.only_a)),
            "only_b": list(map(_intervention, changes.only_b)),
            "both": list(map(_intervention, changes.both)),
        },
        "training": {
            "is_known": comparison.training.is_known,
            "differences": [_training(each) for each in comparison.training.differences],
            "elements": _row(comparison.trained),
        },
        "peaks": [_row(row) for row in comparison.peaks],
        "held": [_row(row) for row in comparison.held],
        "times": [_row(row) for row in comparison.times],
        "times_are_medians": comparison.are_times_medians,
        "device_times": [_row(row) for row in comparison.device_times],
        "totals": [_row(row) for row in comparison.totals],
        "loss": _row(comparison.loss),
        "gradient_norms": [_row(row) for row in comparison.norms],
        "metrics": [_row(row) for row in comparison.metrics],
        "thresholds": [_verdict(verdict) for verdict in verdicts],
    }


def _run(run: RunFigures) -> dict[str, Any]:
    return {
        "file": run.name,
        "steps": run.steps,
        "seconds": _number(run.seconds),
        "is_complete": run.is_complete,
        "is_recording": run.has_series,
        **{name.replace(" ", "_").lower(): value for name, value in run.about.items()},
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "unit": row.unit or None,
        "a": _figure(row.a),
        "b": _figure(row.b),
        "difference": _number(row.difference),
        "relative": _number(row.relative),
        "quartiles_overlap": row.overlaps,
    }


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "value": _number(figure.value),
        "is_finite": None if figure.value is None else figure.is_finite,
        "low": _number(figure.low),
        "high": _number(figure.high),
        "at_least": figure.bound == "at least",
        "bound": figure.bound,
        "measurements": figure.count or None,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _pair(pair: FindingPair) -> dict[str, Any]:
    return {
        "a": pair.a and _finding(pair.a),
        "b": pair.b and _finding(pair.b),
        "is_newly_confirmed": pair.is_newly_confirmed,
    }


def _intervention(change: Intervention) -> dict[str, Any]:
    return {"step": change.step, **_words(change.command), "text": change.text, "receipt": change.receipt}


def _words(command: str) -> dict[str, Any]:
    return {"command": json.loads(command)}


def _training(difference: TrainingDifference) -> dict[str, Any]:
    return {**asdict(difference), "path": difference.path}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {"threshold": verdict.threshold.text, "found": _number(verdict.found), "exceeded": verdict.exceeded}


def _finding(finding: Finding) -> dict[str, Any]:
    return {name: value for name, value in to_object(finding).items() if name in _OF_A_FINDING}
