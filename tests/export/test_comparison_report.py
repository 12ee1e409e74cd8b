"""The formats of a comparison, with hostile names."""

from __future__ import annotations

import json
import math

import pytest
from helpers.summaries import finding

from gradtui.protocol.json_objects import from_object
from gradtui.protocol.json_values import NotReadableError
from gradtui.protocol.run_summary import RunSummary
from gradtui.records.comparison import Figure, Row, RunFigures, compare, run_figures, threshold_of
from gradtui.records.comparison.figures import Intervention, Parameter
from gradtui.records.export.comparison_blocks import change_text, figure_text
from gradtui.records.export.comparison_report import comparison_report

NASTY = "a\x1b[2J|`<b>\n# @someone \ud800 *x*"


def hostile() -> RunFigures:
    return RunFigures(
        NASTY,
        about={"arguments": NASTY},
        steps=20,
        loss=tuple((step, math.nan) for step in range(1, 21)),
        parameters={NASTY: Parameter(3, NASTY), "x": Parameter(1, "T")},
        findings=(finding(NASTY, level=NASTY, status=NASTY, message=NASTY, paths=[NASTY]),),
        interventions=(Intervention(3, json.dumps({"path": NASTY}), NASTY, NASTY),),
    )


@pytest.mark.parametrize("format_name", ["text", "json", "markdown"])
def test_names_cannot_control_a_terminal_or_a_page(format_name: str) -> None:
    comparison = compare(RunFigures("a", parameters={"x": Parameter(1, "F")}), hostile())
    report = comparison_report(comparison, [threshold_of("loss>1").verdict(comparison)], format_name)
    report.encode()
    assert all(line.isprintable() or format_name == "markdown" for line in report.splitlines())
    assert "\x1b" not in report
    if format_name == "json":
        assert json.loads(report)["findings"]["new"][0]["b"]["message"] == NASTY
    if format_name == "markdown":
        assert "<b>" not in report
        assert "@someone" not in report
        assert not any(line.startswith("# ") for line in report.splitlines())


@pytest.mark.parametrize(
    ("values", "needs"),
    [
        ({"phases": 3}, "an object in phases"),
        ({"steps": "many"}, "an integer of 64 bits in steps"),
        ({"steps": True}, "an integer of 64 bits in steps"),
        ({"findings": [{}, 3]}, "an object in findings"),
        ({"interventions": 1}, "a list in interventions"),
        ({"phases": {"forward": {"seconds": "x"}}}, "a number in seconds in phases"),
        ({"phases": {"forward": {"bytes_peak": 10**400}}}, "an integer of 64 bits in bytes_peak in phases"),
        ({"parameters": [{"shape": ["y"]}]}, "a list of values of type int in shape in parameters"),
        ({"gradient_norm": {"last": []}}, "a number in last in gradient_norm"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_summary_with_value_of_another_type_says_where(values: dict[str, object], needs: str) -> None:
    with pytest.raises(NotReadableError) as error:
        from_object(RunSummary, values)
    assert str(error.value) == needs


@pytest.mark.parametrize(
    "summary",
    [
        {},
        {"phases": {"forward": {}, "of the future": {"seconds": None}}, "findings": [{}], "interventions": [{"x": []}]},
        {"parameters": [{}, {"path": "x", "new": {"y": 1}}], "gradient_norm": {}, "device_memory": {}, "bad_step": {}},
        {
            "steps": -5,
            "seconds": -1.0,
            "phases": {"forward": {"seconds": -1.0, "bytes_peak": -3, "bytes_end": {"input": 2}}},
        },
    ],
    ids=["nothing", "rows", "parameters", "negative"],
)
def test_a_summary_of_another_version_is_compared(summary: dict[str, object]) -> None:
    run = run_figures("x", from_object(RunSummary, summary), None, is_complete=True)
    for format_name in ("text", "json", "markdown"):
        assert comparison_report(compare(run, run), [], format_name)


@pytest.mark.parametrize(
    ("figure", "unit", "text"),
    [
        (Figure(), "bytes", "–"),
        (Figure(0.0661, 0.061, 0.0702), "seconds", "66.1 ms (61.0–70.2)"),
        (Figure(0.0009, 0.0005, 0.0011), "seconds", "900 µs (500–1100)"),
        (Figure(90.0), "seconds", "1m 30s"),
        (Figure(1 << 20, bound="at least"), "bytes", "≥ 1.00 MiB"),
        (Figure(math.nan), "", "NaN"),
        (Figure(2.0, count=3), "", "2.00 (3 values)"),
        (Figure(2.0, count=1), "", "2.00 (1 value)"),
        (Figure(1234567), "elements", "1,234,567"),
    ],
)
def test_figures(figure: Figure, unit: str, text: str) -> None:
    assert figure_text(figure, unit) == text


@pytest.mark.parametrize(
    ("a", "b", "unit", "text"),
    [
        (Figure(100.0), Figure(104.3), "", "+4.3 %"),
        (Figure(100.0), Figure(50.0), "", "-50 %"),
        (Figure(100.0), Figure(100.01), "", "<0.1 %"),
        (Figure(1.0), Figure(12.3), "", "×12.3"),
        (Figure(1 << 20), Figure(3 << 19), "bytes", "+512 KiB, +50 %"),
        (Figure(0.0), Figure(2.0), "", "+2.00"),
        (Figure(-2.0), Figure(-3.0), "", "-1.00"),
        (Figure(2.0), Figure(2.0), "", "same"),
        (Figure(2.0), Figure(), "", "–"),
        (Figure(2.0, 1.0, 3.0), Figure(4.0, 3.0, 5.0), "", "+100 % ~"),
        (Figure(2.0, 1.0, 3.0), Figure(4.0, 3.1, 5.0), "", "+100 %"),
    ],
)
def test_changes(a: Figure, b: Figure, unit: str, text: str) -> None:
    assert change_text(Row("x", unit, a, b)) == text


def test_a_finding_has_these_keys() -> None:
    run = RunFigures("x", findings=(finding("GT104", message="m", paths=["a"], first_step=3),))
    (pair,) = json.loads(comparison_report(compare(RunFigures("y"), run), [], "json"))["findings"]["new"]
    assert pair["b"] == {
        "rule": "GT104", "level": "warning", "status": "confirmed", "message": "m", "paths": ["a"],
        "first_step": 3, "cleared_step": None,
    }  # fmt: skip
