"""The recording of a job in a report and in a comparison: its ranks, and the figures of the shown one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.events import rank_joined
from helpers.recordings import record

from gradtui.launch.replay.compared_run import read_run
from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import GroupSettings
from gradtui.records.report.contents import Contents, contents_of
from gradtui.records.report.markdown import markdown_report
from gradtui.records.report.page import page
from gradtui.records.report.rank_contents import rank_cells
from gradtui.records.report.recorded_run import recorded_run


def joined(rank: int, generation: int = 0) -> ev.RankJoined:
    return rank_joined(rank, host=f"node<{rank}>", generation=generation)


def of(rank: int, event: ev.Event, generation: int = 0) -> ev.RankEvent:
    return ev.RankEvent(event.at + 1.0, event.step, rank, generation, event)


def training_of_rank(rank: int, losses: tuple[float, ...], generation: int = 0) -> list[ev.Event]:
    """A rank that trains; its learning rate is halved at each step."""
    made: list[ev.Event] = [of(rank, ev.RunStarted(0.0, 0, "train.py", (), 1, "", "", "", None), generation)]
    for step, loss in enumerate(losses, start=1):
        groups = ((GroupSettings(2.0**-step, None),),)
        made.append(of(rank, ev.GroupsRead(step, step, groups), generation))
        made.append(of(rank, ev.GradientsMeasured(step, step, 10.0 * loss, loss, None), generation))
        made.append(of(rank, ev.Progress(step + 0.5, step, 1, 1, 0, (1,), (), 0.0, 1, 1), generation))
    return made


def recorded(path: Path, *events: ev.Event) -> Path:
    return record(path, events, script="torchrun", rules=[])


def job(path: Path, code: int = 0) -> Path:
    ends = [of(rank, ev.RunEnded(9.0, 3, rank * code, None)) for rank in range(2)]
    ranks = [*training_of_rank(0, (4.0, 3.0, 2.0)), *training_of_rank(1, (40.0, 30.0, 20.0)), *ends]
    return recorded(path, joined(0), joined(1), *ranks, ev.RunEnded(9.0, 0, code, None))


def contents_of_ranks(path: Path) -> Contents:
    return contents_of(recorded_run(path))


def test_report_has_ranks_and_names_failed_one(tmp_path: Path) -> None:
    made = contents_of_ranks(job(tmp_path / "run.jsonl", code=7)).ranks
    assert [(each.rank, each.trouble, rank_cells(each)) for each in made.ranks] == [
        (1, "failed", ("failed with exit code 7", "3", "", "", "200")),
        (0, None, ("ended", "3", "", "", "20.0")),
    ]
    assert made.outcome == "2 ranks, 3 steps each, rank 1 failed"
    assert "rank 0" in made.notes[0]


def test_curves_of_report_are_those_of_shown_rank(tmp_path: Path) -> None:
    made = contents_of_ranks(job(tmp_path / "run.jsonl"))
    assert made.series.loss.points == ((1, 4.0), (2, 3.0), (3, 2.0))
    (rate,) = made.series.rates
    assert rate.points == ((1, 0.5), (2, 0.25), (3, 0.125))


def test_report_on_one_process_says_nothing_of_ranks(tmp_path: Path) -> None:
    made = contents_of_ranks(recorded(tmp_path / "run.jsonl", ev.RunEnded(9.0, 0, 0, None)))
    assert made.ranks is None
    assert "Ranks" not in markdown_report(made)


def test_both_formats_have_the_ranks_with_names_escaped(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    made = contents_of_ranks(job(tmp_path / "run.jsonl", code=7))
    assert "| 1 | failed with exit code 7 | 3 |" in markdown_report(made)
    html = page(made)
    assert 'id="ranks"' in html
    assert "node&lt;0&gt;" in html
    assert "node<0>" not in html


def test_rank_without_end_or_join_is_named(tmp_path: Path) -> None:
    made = contents_of_ranks(recorded(tmp_path / "run.jsonl", joined(0), *training_of_rank(0, (4.0,)))).ranks
    assert "1 rank of 2 never joined." in made.notes
    assert rank_cells(made.ranks[0])[0] == "not ended"


def figures(path: Path) -> Any:
    return read_run(path)[0]


def test_comparison_has_series_of_shown_rank(tmp_path: Path) -> None:
    run = figures(job(tmp_path / "run.jsonl"))
    assert run.loss == ((1, 4.0), (2, 3.0), (3, 2.0))
    assert run.gradient_norm == ((1, 40.0), (2, 30.0), (3, 20.0))
    assert [each.step for each in run.times] == [1, 2, 3]
    assert run.about["ranks"] == "2"
    assert figures(job(tmp_path / "failed.jsonl", code=7)).about["ranks"] == "2, not ended in order: 1"


def test_after_restart_series_are_those_of_new_generation(tmp_path: Path) -> None:
    events = [
        joined(0),
        joined(1),
        *training_of_rank(0, (4.0, 3.0)),
        joined(0, 1),
        joined(1, 1),
        *training_of_rank(0, (5.0,), 1),
    ]
    path = recorded(tmp_path / "run.jsonl", *events)
    run = figures(path)
    assert run.loss == ((1, 5.0),)
    assert run.about["ranks"] == "2, restarted 1 time, not ended in order: 0, 1"
    made = contents_of_ranks(path)
    assert made.series.loss.points == ((1, 5.0),)
    assert made.series.rates == ()
    assert any("generation 1" in note for note in made.ranks.notes)
