"""What the script logs, in the summary, in comparisons, in exported tables and in reports."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from helpers.fakes import coop_run
from helpers.metric_events import LOGGED, metrics_logged
from helpers.recordings import record
from helpers.states import state_after
from helpers.summaries import summarised

from gradtui.launch.replay.compared_run import read_run
from gradtui.protocol import events as ev
from gradtui.records.comparison import compare
from gradtui.records.export.comparison_report import comparison_report
from gradtui.records.export.formats import FORMATS
from gradtui.records.recording import Recording
from gradtui.records.report.contents import contents_of
from gradtui.records.report.markdown import markdown_report
from gradtui.records.report.page import page
from gradtui.records.report.recorded_run import recorded_run


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    validated = metrics_logged({"val/loss": {30: 9.0}}, "mlflow")
    return record(tmp_path / "run.jsonl", [*coop_run(40), metrics_logged(), validated, ev.RunEnded(9.0, 40, 0, None)])


def test_summary_has_ends_and_extremes_of_each_metric() -> None:
    rows = summarised(state_after(metrics_logged()))["metrics"]
    assert [row["name"] for row in rows] == [*LOGGED]
    accuracy = rows[2]
    assert {name: accuracy[name] for name in ("source", "of", "first", "last", "last_step", "max", "max_step")} == {
        "source": "wandb", "of": "validation", "first": 0.6, "last": 0.65, "last_step": 30, "max": 0.7, "max_step": 20,
    }  # fmt: skip
    assert (accuracy["min"], accuracy["measured_steps"]) == (0.6, 3)
    assert rows[3]["of"] is None


def test_a_recording_and_a_summary_are_compared(recorded: Path, tmp_path: Path) -> None:
    state = state_after(*coop_run(40), metrics_logged({"val/loss": {10: 0.6, 40: 0.9}}), ev.RunEnded(9.0, 40, 0, None))
    other = tmp_path / "b.json"
    other.write_text(json.dumps(summarised(state)))
    found = compare(read_run(recorded)[0], read_run(other)[0])
    text = comparison_report(found, (), "text")
    assert "METRICS" in text
    (line,) = [line for line in text.splitlines() if line.lstrip().startswith("val/loss")]
    assert line.split() == ["val/loss", "0.450", "0.900", "+100", "%"]
    rows = json.loads(comparison_report(found, (), "json"))["metrics"]
    assert [row["name"] for row in rows] == [*LOGGED]


def test_tables_have_each_value_once(recorded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    FORMATS["csv"].write(Recording(recorded), folder, False)
    rows = [*csv.DictReader(io.StringIO((folder / "metrics.csv").read_text()))]
    assert len(rows) == sum(map(len, LOGGED.values()))
    (best,) = [row for row in rows if row["metric"] == "val/accuracy" and row["step"] == "20"]
    assert (float(best["metric_value"]), best["metric_of"], best["metric_source"]) == (0.7, "validation", "wandb")


def test_report_has_row_per_metric_and_charts(recorded: Path) -> None:
    contents = contents_of(recorded_run(recorded))
    rows = {name: others for name, *others in contents.metrics.rows}
    assert rows["val/accuracy"][3] == "0.700 (step 20)"
    assert [(chart.title, len(chart.curves)) for chart in contents.metrics.charts] == [
        ("loss", 2),
        ("accuracy", 1),
        ("lr", 1),
    ]
    html = page(contents)
    assert 'id="metrics"' in html
    assert 'data-chart="metric-2"' in html
    assert "| `val/accuracy` | validation | 0.650 (step 30) | 0.600 (step 10) | 0.700 (step 20) | wandb |" in (
        markdown_report(contents)
    )
