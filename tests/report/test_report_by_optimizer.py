"""Reports on runs with several optimizers: no chart and no fact is of two of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.fakes import Node
from helpers.optimizer_runs import gan, linear, loss_at, models, norm_at, owner, run_of, sac, stages, steps
from helpers.parsed_pages import Parsed
from helpers.recordings import record
from report_runs import HOSTILE

from gradtui.protocol import events as ev
from gradtui.records.report import contents_of, page, recorded_run
from gradtui.records.report.charts import charts
from gradtui.records.report.contents import Contents
from gradtui.run.text.units import number_text

vl_convert = pytest.importorskip("vl_convert")


def contents(path: Path, events: list[ev.Event]) -> Contents:
    end = ev.RunEnded(9.0, 40, 0, None)
    return contents_of(recorded_run(record(path / "run.jsonl", [*events, end], gradtui="0.1.0", rules=None)))


def facts(found: Contents) -> dict[str, tuple[str, str]]:
    return {fact.label: (fact.value, fact.note) for fact in found.facts}


def ends(value: float, first: float, step: int) -> tuple[str, str]:
    return number_text(value).strip(), f"from {number_text(first).strip()} at step {step}"


def test_a_gan_has_a_chart_of_each_loss(tmp_path: Path) -> None:
    found = contents(tmp_path, gan(40))
    assert (found.series.loss_of, [curve.name for curve in found.series.other_losses]) == (
        "Discriminator",
        ["Generator"],
    )
    assert found.series.loss.points == tuple((step, loss_at(1, step)) for step in range(1, 41, 2))
    assert found.series.other_losses[0].points == tuple((step, loss_at(0, step)) for step in range(2, 41, 2))
    assert [curve.name for curve in found.series.norms] == [
        "gradient norm of Discriminator",
        "gradient norm of Generator",
    ]
    assert [chart.name for chart in charts(found)][:3] == ["loss", "loss-2", "norms"]
    told = facts(found)
    assert told["Loss of Discriminator"] == ends(loss_at(1, 39), loss_at(1, 1), 1)
    assert told["Loss of Generator"] == ends(loss_at(0, 40), loss_at(0, 2), 2)
    assert told["Gradient norm of Discriminator"] == ends(norm_at(1, 39), norm_at(1, 1), 1)
    assert told["Gradient norm of Generator"] == ends(norm_at(0, 40), norm_at(0, 2), 2)
    assert told["Steps"][1].endswith(": Discriminator 20, Generator 20")
    text = page(found)
    assert "Loss of Discriminator" in text
    assert "Loss of Generator" in text


def test_lines_of_stages_break_where_optimizer_changes(tmp_path: Path) -> None:
    found = contents(tmp_path, stages(20))
    assert not found.series.other_losses
    assert found.series.breaks == (20,)
    assert [step for step, _ in found.series.loss.points] == [*range(1, 41)]
    assert facts(found)["Loss"] == ends(loss_at(1, 40), loss_at(1, 21), 21)
    assert facts(found)["Gradient norm"] == ends(norm_at(1, 40), norm_at(1, 21), 21)


def test_three_optimizers_have_three_charts(tmp_path: Path) -> None:
    assert [chart.name for chart in charts(contents(tmp_path, sac(40)))][:4] == ["loss", "loss-2", "loss-3", "norms"]


def test_no_name_of_model_becomes_part_of_page(tmp_path: Path) -> None:
    names = f"{HOSTILE[:19]}1", f"{HOSTILE[:19]}2"
    listed = models(*(Node(name, name, (), (linear("net"),)) for name in names))
    owners = [owner(listed, name) for name in names]
    text = page(contents(tmp_path, run_of(listed, owners, steps([0, 1] * 20, 2))))
    assert "</script><script>a" not in text
    assert Parsed(text).tags
