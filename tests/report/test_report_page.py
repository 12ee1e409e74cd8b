"""The page of a report: it is whole, it loads nothing, and no name of the script becomes a part of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.fakes import MIB, coop_model, finding
from helpers.parsed_pages import Parsed
from report_runs import HOSTILE, ended, hostile_copy, record_run, step_totals

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.records.report import contents_of, page, recorded_run
from gradtui.records.report.charts import charts
from gradtui.records.report.recorded_run import run_of
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

vl_convert = pytest.importorskip("vl_convert")


def page_of(path: Path) -> str:
    return page(contents_of(recorded_run(path)))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_run(tmp_path_factory.mktemp("recording") / "run.jsonl", ended(1, "Traceback:\nValueError: no"))


@pytest.fixture(scope="module")
def made(recording: Path) -> str:
    return page_of(recording)


def elements(source: str) -> list[str]:
    return Parsed(source).tags


def test_page_has_sections_with_ordered_headings(made: str) -> None:
    parsed = Parsed(made)
    ids = {attributes.get("id") for attributes in parsed.attributes}
    assert {"findings", "training", "curves", "memory", "changes", "run", "report"} <= ids
    levels = [int(tag[1]) for tag in parsed.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_link_within_the_page_has_its_target(made: str) -> None:
    parsed = Parsed(made)
    ids = [attributes["id"] for attributes in parsed.attributes if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [href for attributes in parsed.attributes if (href := attributes.get("href"))]
    assert {link.removeprefix("#") for link in links if link.startswith("#")} <= set(ids)


def test_the_page_refers_to_no_other_file(made: str) -> None:
    parsed = Parsed(made)
    assert not {"link", "iframe", "object", "embed", "img", "base", "form"} & set(parsed.tags)
    assert not any("src" in attributes for attributes in parsed.attributes)
    styles = made[made.index("<style>") : made.index("</style>")]
    assert "url(" not in styles
    assert "@import" not in styles


def test_policy_allows_scripts_of_page_and_nothing_else(made: str) -> None:
    policy = next(a["content"] for a in Parsed(made).attributes if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    scripts = re.findall(r"<script>(.*?)</script>", made, flags=re.DOTALL)
    assert len(scripts) == 2
    digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts]
    directives = dict(each.strip().split(" ", 1) for each in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    assert "connect-src" not in directives


def test_tables_have_captions_and_headed_columns_and_rows(made: str) -> None:
    tables = re.findall(r"<table.*?</table>", made[: made.index("chart-data")], flags=re.DOTALL)
    assert len(tables) >= 5
    for table in tables:
        assert table.count("<caption>") == 1
        columns = table.count('scope="col"')
        for row in re.findall(r"<tr.*?</tr>", table, flags=re.DOTALL)[1:]:
            assert row.count('scope="row"') == 1
            assert len(re.findall(r"<t[hd][ >]", row)) == columns


NAMES = ("text_encoder", "ctx", "CoOp", "AdamW", "coop_like.py", "ValueError: no", "unfroze it", "would be NaN")
"""Names and texts of the recording: of modules, parameters, types, the script, its error, answers and refusals."""


def test_hostile_names_change_no_element_of_the_page(recording: Path, made: str, tmp_path: Path) -> None:
    hostile = page_of(hostile_copy(recording, tmp_path / "hostile.jsonl", *NAMES))
    assert elements(hostile) == elements(made)
    assert "alert(1)" in hostile
    # Vega's own script has elements in its strings.
    own, _, rest = hostile.partition('<script type="application/json"')
    data = rest[: rest.index("</script>")]
    assert "<img" not in own
    assert "<script>" not in own
    assert "<" not in data.partition(">")[2]
    assert "\u202e" not in own


def test_hostile_finding_changes_no_element_of_page() -> None:
    def with_words(words: str) -> str:
        state = RunState()
        apply(state, coop_model())
        more = {"why": words, "remedy": words, "command": words, "file": words, "line": 3, "paths": (words,)}
        state.findings = [finding("GT203", message=words, evidence={words: words}, **more)]
        return page(contents_of(run_of(state)))

    assert elements(with_words(HOSTILE)) == elements(with_words("plain"))


def test_charts_are_valid_and_have_measured_numbers(made: str) -> None:
    data = json.loads(
        re.findall(r'<script type="application/json" id="chart-data">(.*?)</script>', made, flags=re.DOTALL)[0]
    )
    assert set(data) == {"loss", "norms", "phases", "step", "totals"}
    for chart in data.values():
        assert vl_convert.vegalite_to_vega(chart["spec"], "v6.1")["signals"]
    points = data["loss"]["spec"]["data"]["values"]
    assert [point["step"] for point in points] == [*range(1, 61)]
    totals = data["totals"]["spec"]["data"]["values"]
    for phase in ("forward", "backward", "optimizer"):
        points = [point for point in totals if point["curve"] == phase]
        assert [point["step"] for point in points] == [*range(1, 61)]
        # What a chart leaves out of each is the same.
        first = getattr(step_totals(1), phase)
        expected = [(getattr(step_totals(step), phase) - first) / MIB for step in range(1, 61)]
        assert [point["value"] - points[0]["value"] for point in points] == pytest.approx(expected)


def test_spikes_are_marks_in_chart_and_note(tmp_path: Path) -> None:
    peaks = {61: 160 * MIB, 63: 360 * MIB}
    totals = tuple(
        ev.StepTotals(step, peaks.get(step, 60 * MIB), 50 * MIB, 40 * MIB, peaks.get(step, 60 * MIB))
        for step in range(61, 65)
    )
    spikes = [
        ev.MemorySpikeFound(8.5, step, Phase.FORWARD, peak, 60 * MIB, number)
        for number, (step, peak) in enumerate(peaks.items(), 1)
    ]
    file = record_run(tmp_path / "spikes.jsonl", ev.StepMemoryMeasured(8.0, 64, totals), *spikes, ended(steps=64))
    contents = contents_of(recorded_run(file))
    (chart,) = [chart for chart in charts(contents) if chart.name == "totals"]
    assert vl_convert.vegalite_to_vega(chart.spec, "v6.1")["signals"]
    marks = chart.spec["layer"][-1]["data"]["values"]
    base = contents.memory.totals_base
    assert {mark["step"]: mark["value"] * MIB for mark in marks} == {step: peak - base for step, peak in peaks.items()}
    made = page(contents)
    words = "2 memory spikes (far above the peaks of the steps around), the largest at step 63 in forward: "
    assert f"{words}≥ 360.0 MiB, usually 60.0 MiB." in made
    assert "at step 63 in forward" in made


def test_chart_with_hostile_names_is_same_chart(recording: Path, tmp_path: Path) -> None:
    def without_texts(value: object) -> object:
        if isinstance(value, dict):
            return {key: without_texts(each) for key, each in value.items() if key not in ("text", "what")}
        return [without_texts(each) for each in value] if isinstance(value, list) else value

    one = charts(contents_of(recorded_run(recording)))
    other = charts(contents_of(recorded_run(hostile_copy(recording, tmp_path / "hostile.jsonl", *NAMES))))
    assert [without_texts(each.spec) for each in one] == [without_texts(each.spec) for each in other]


def test_a_page_without_measurements_has_no_script() -> None:
    state = RunState()
    apply(state, ev.RunEnded(1.0, 0, 0, None))
    made = page(contents_of(run_of(state)))
    assert "<script" not in made
    assert "script-src &#39;none&#39;" in made


def test_a_cut_recording_says_so_before_anything_else(tmp_path: Path) -> None:
    path = record_run(tmp_path / "run.jsonl")
    path.write_bytes(path.read_bytes()[:-40])
    made = page_of(path)
    assert made.index("middle of a line") < made.index("<main")


def test_no_curve_goes_on_across_change_of_models(recording: Path) -> None:
    contents = contents_of(recorded_run(recording))
    before, after = (
        {chart.name: chart.spec["data"]["values"] for chart in charts(each) if chart.name in ("loss", "norms")}
        for each in (contents, replace(contents, series=replace(contents.series, breaks=(30,))))
    )
    assert before
    for name, rows in before.items():
        gaps = [row for row in after[name] if row not in rows]
        assert [(row["step"], row["value"]) for row in gaps] == [(30.5, None)] * len({row["curve"] for row in rows})
