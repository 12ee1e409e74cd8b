"""The templates of the page: names come from the script, and a recording may come from anyone, so every text is escaped.

Jinja2 escapes; control characters, and those that reverse the direction of text, are taken out of what a template writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gradtui.protocol.json_text import to_document
from gradtui.protocol.run_summary import Finding
from gradtui.records.report.charts import metric_chart, other_loss
from gradtui.records.report.memory_contents import MemoryContents, PhaseMemory, part_names
from gradtui.records.report.rank_contents import rank_cells
from gradtui.records.report.rule_markup import rule_markup
from gradtui.records.report.run_series import RunSeries
from gradtui.run.state.findings import EvidenceValue
from gradtui.run.text.explanation.states import STATE_SUMMARIES
from gradtui.run.text.forecast import forecast_error_words
from gradtui.run.text.units import (
    DASH,
    bounded,
    count_text,
    duration_text,
    number_text,
    plural,
    sentence,
    share_words,
    short_bytes,
    short_rate,
)
from gradtui.system.printable import printable
from gradtui.system.version import __version__

_ROWS = 48
"""Rows of the table that has the numbers of the curves."""
_IN_SCRIPTS = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""Without these a text cannot end a script element, and begin no comment in it."""


def templates() -> Environment:
    """Return the environment that loads the templates. An unknown name in one raises an error."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"DASH": DASH, "STATE_SUMMARIES": STATE_SUMMARIES, "version": __version__}
    made.filters |= {
        "bounded": bounded,
        "column_of_numbers": lambda name: (name.capitalize(), "number"),
        "count_text": lambda count: count_text(count).strip(),
        "curve_numbers": _curve_numbers,
        "duration": duration_text,
        "evidence": _evidence,
        "forecast_errors": forecast_error_words,
        "metric_chart": metric_chart,
        "number": lambda value: number_text(value).strip() if value is not None else "",
        "other_loss": other_loss,
        "part_cells": _part_cells,
        "part_columns": lambda memory: [(part_names()[role].capitalize(), "number") for role in _filled(memory)],
        "plural": plural,
        "rank_cells": rank_cells,
        "rule_markup": rule_markup,
        "sentence": sentence,
        "share": share_words,
        "short_bytes": short_bytes,
        "steps_of_finding": _steps,
        "thousands": "{:,}".format,
        "zip": zip,
    }
    return made


def _clean(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        # A lone surrogate cannot be written as UTF-8.
        return printable(value).encode("utf-8", "replace").decode("utf-8")
    return value


def json_script(name: str, data: Any) -> Markup:
    """Return data as an element that no browser runs. Raises ValueError if a number is not finite."""
    # Chromium ends itself where it must write a lone surrogate.
    encoded = to_document(data, is_compact=True, ensure_ascii=False).translate(_IN_SCRIPTS)
    encoded = encoded.encode("utf-8", "replace").decode("utf-8")
    return Markup('<script type="application/json" id="{}">{}</script>').format(name, Markup(encoded))


def _evidence(value: EvidenceValue) -> str:
    return DASH if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _steps(found: Finding) -> str:
    begins = f"from step {found.first_step:,}" if found.first_step else "from the start"
    if found.cleared_step is not None:
        return f"{begins}, until step {found.cleared_step:,}"
    first, last = found.first_step or 0, found.last_step or 0
    return f"{begins} to step {last:,}" if last > first else begins


def _filled(memory: MemoryContents) -> list[str]:
    filled = {role for phase in memory.phases for role, _, size in phase.parts if size}
    return [role for role in part_names() if role in filled]


def _part_cells(phase: PhaseMemory, memory: MemoryContents) -> list[str]:
    sizes = {role: size for role, _, size in phase.parts}
    return [short_bytes(sizes.get(role)) for role in _filled(memory)]


def _curve_numbers(series: RunSeries) -> tuple[list[str], list[list[str]], int]:
    """Return the names of the curves, their values in some of the steps, and the number of steps."""
    others = [(f"loss of {curve.name}", curve) for curve in series.other_losses]
    curves = [("loss", series.loss), *others, *((curve.name, curve) for curve in (*series.norms, *series.clipping))]
    known: list[tuple[str, dict[int, float], Callable[[float], str]]] = [
        (name, dict(curve.points), _number) for name, curve in curves if curve.points
    ]
    known += [(curve.name, dict(curve.points), short_rate) for curve in series.rates]
    steps = sorted({step for _, points, _ in known for step in points})
    rows = [
        [f"{step:,}", *(text(points[step]) if step in points else "" for _, points, text in known)]
        for step in _thinned(steps)
    ]
    return ["step", *(name for name, _, _ in known)], rows, len(steps)


def _number(value: float) -> str:
    return number_text(value).strip()


def _thinned(steps: Sequence[int]) -> Sequence[int]:
    """Return at most `_ROWS` of the steps, evenly spaced, with the first and the last one."""
    if len(steps) <= _ROWS:
        return steps
    return [steps[round(index * (len(steps) - 1) / (_ROWS - 1))] for index in range(_ROWS)]
