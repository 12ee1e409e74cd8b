"""The page in Chromium: it draws its charts, logs no error, asks for nothing, and fits a narrow screen."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest
from report_runs import ended, hostile_copy, record_run
from test_report_page import NAMES

from gradtui.records.report import contents_of, page, recorded_run

pytest.importorskip("vl_convert")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
    pytest.mark.xdist_group("chromium"),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    recording = record_run(tmp_path_factory.mktemp("recording") / "run.jsonl", ended())
    return page(contents_of(recorded_run(recording)))


class Opened:
    """What Chromium has made of a page: its elements, and what it logged."""

    def __init__(self, source: str, folder: Path, width: int = 1280) -> None:
        file = folder / "page.html"
        file.write_text(source, encoding="utf-8")
        command = [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr",
            # Chromium's own requests reach nobody.
            "--disable-background-networking", "--proxy-server=127.0.0.1:9", f"--user-data-dir={folder}/profile",
            f"--window-size={width},1200", "--virtual-time-budget=5000", "--dump-dom", file.as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
        self.elements = done.stdout
        self.console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


def with_script(source: str, script: str) -> str:
    """Return a page without its policy, whose element `result` has what a script returns once the charts are drawn."""
    source = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", source)
    run = (
        "const result = document.createElement('pre'); result.id = 'result'; document.body.append(result);"
        "const wait = setInterval(async () => { if (!document.documentElement.dataset.drawn) return; clearInterval(wait);"
        f"result.textContent = JSON.stringify(await (async () => {{ {script} }})()); }}, 20);"
    )
    # Vega's script has this in a string too.
    before, _, after = source.rpartition("</body>")
    return f"{before}<script>{run}</script></body>{after}"


def result_of(source: str, script: str, folder: Path, width: int = 1280) -> object:
    opened = Opened(with_script(source, script), folder, width)
    (found,) = re.findall(r'<pre id="result">(.*?)</pre>', opened.elements, flags=re.DOTALL)
    return json.loads(unescape(found))


REQUESTED = "return performance.getEntriesByType('resource').map(each => each.name)"
LOADING = '<img src="http://asked.invalid/x.png">'


def test_the_charts_are_drawn_without_an_error(source: str, tmp_path: Path) -> None:
    opened = Opened(source, tmp_path)
    # The policy of the page logs what it forbids.
    assert opened.console == []
    assert re.search(r'<html[^>]* data-drawn="5"', opened.elements)
    charts = opened.elements.split('class="chart')[1:]
    assert len(charts) == 5
    assert all("<svg" in chart and "<path" in chart for chart in charts)


def test_page_asks_for_nothing_even_without_its_policy(source: str, tmp_path: Path) -> None:
    assert result_of(source, REQUESTED, tmp_path) == []


def test_a_request_would_be_seen(source: str, tmp_path: Path) -> None:
    found = result_of(source.replace("<main", f"{LOADING}<main"), REQUESTED, tmp_path)
    assert found == ["http://asked.invalid/x.png"]


def test_the_policy_stops_requests_and_other_scripts(source: str, tmp_path: Path) -> None:
    added = f'{LOADING}<script>document.title = "changed"</script><main'
    opened = Opened(source.replace("<main", added), tmp_path)
    assert "<title>changed" not in opened.elements
    assert len(opened.console) == 2
    assert all("Content Security Policy" in line for line in opened.console)


def test_hostile_names_run_nothing(tmp_path: Path) -> None:
    recording = record_run(tmp_path / "run.jsonl", ended())
    hostile = page(contents_of(recorded_run(hostile_copy(recording, tmp_path / "hostile.jsonl", *NAMES[:5]))))
    opened = Opened(hostile, tmp_path)
    assert opened.console == []
    assert 'data-drawn="5"' in opened.elements


@pytest.mark.parametrize("width", [500, 1280])
def test_the_page_is_no_wider_than_the_screen(source: str, width: int, tmp_path: Path) -> None:
    script = (
        "document.querySelectorAll('details').forEach(each => each.open = true);"
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    found = result_of(source, script, tmp_path, width)
    assert isinstance(found, list)
    assert found[0] == found[1]
    assert found[1] == pytest.approx(width, abs=20)


def test_the_sliders_choose_the_steps_of_all_charts(source: str, tmp_path: Path) -> None:
    script = """
    const labels = () => [...document.querySelectorAll("[data-chart]")]
      .filter(each => ["loss", "norms", "totals"].includes(each.dataset.chart))
      .map(each => [...each.querySelectorAll('[aria-label^="X-axis"] .role-axis-label text')].map(text => text.textContent));
    const all = labels();
    const first = document.getElementById("first-step");
    first.value = 40;
    first.dispatchEvent(new Event("input"));
    await new Promise(done => setTimeout(done, 200));
    return [first.min, first.max, document.getElementById("first-step-shown").textContent, all, labels()];
    """
    found = result_of(source, script, tmp_path)
    assert isinstance(found, list)
    least, most, shown, before, after = found
    assert (least, most, shown) == ("1", "60", "40")
    assert len(before) == len(after) == 3
    for labels, fewer in zip(before, after):
        assert "20" in labels
        assert "20" not in fewer
        assert "50" in fewer
