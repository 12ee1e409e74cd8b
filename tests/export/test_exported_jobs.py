"""The recording of a job: each format has the rows of every rank, at the times of the viewer's run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.events import rank_joined
from helpers.exports import read_parquet, read_scalars
from test_export_formats import BEGAN, exported, models, norms, progress, read_csv, recorded

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.records.export.formats import FORMATS, ExportError
from gradtui.records.recording import Recording

JOINED = (2.0, 2.5)
"""Seconds of the viewer's run when the ranks join."""


def of_rank(rank: int, event: ev.Event, generation: int = 0) -> ev.RankEvent:
    return ev.RankEvent(JOINED[rank] + event.at + 0.01, event.step, rank, generation, event)


def joined(rank: int, generation: int = 0) -> ev.RankJoined:
    return rank_joined(rank, at=JOINED[rank], host="node", generation=generation)


def job() -> list[ev.Event]:
    """Two ranks that train at the same time. The loss of rank 1 is ten times that of rank 0."""
    own = [
        [
            ev.RunStarted(0.0, 0, "train.py", (), 100 + rank, "", "", "", None),
            models(),
            norms(1.0, 1, 2.5 * 10**rank, 2.0, 3.0, 4.0),
            progress(1.25, 1, 1, forward=0.25, backward=0.5),
            norms(1.5, 2, 2.0 * 10**rank, 1.0, 6.0, 8.0),
            progress(1.75, 2, 1, forward=0.25, backward=0.25),
            ev.CommandRejected(1.8, 2, SetTrainable(5, "c", False), f"rank {rank} has no c"),
            ev.RunEnded(2.0, 2, rank, None),
        ]
        for rank in range(2)
    ]
    ranks = [of_rank(rank, event) for each in zip(*own) for rank, event in enumerate(each)]
    start = ev.RunStarted(0.0, 0, "torchrun", (), 7, "", "", "", None)
    return [start, joined(0), joined(1), *ranks, ev.RankLeft(5.0, 2, 1, 0, ""), ev.RunEnded(6.0, 0, 1, None)]


def test_csv_has_steps_of_every_rank(tmp_path: Path) -> None:
    rows = read_csv(exported("csv", tmp_path / "out", job()), "steps")
    found = [(int(row["rank"]), int(row["step"]), float(row["loss"]), float(row["time_s"])) for row in rows]
    assert sorted(found) == [(0, 1, 2.5, 3.0), (0, 2, 2.0, 3.5), (1, 1, 25.0, 3.5), (1, 2, 20.0, 4.0)]
    assert [float(row["step_time_s"]) for row in rows if row["rank"] == "1"] == [0.75, 0.5]


def test_csv_has_norms_and_parameters_of_every_rank(tmp_path: Path) -> None:
    folder = exported("csv", tmp_path / "out", job())
    of_both = [(row["rank"], row["parameter"]) for row in read_csv(folder, "parameters")]
    assert of_both == [(rank, path) for rank in "01" for path in ("scale", "b.weight", "b.bias")]
    found = {(row["rank"], row["step"], row["parameter"]): row for row in read_csv(folder, "gradient_norms")}
    assert float(found["1", "2", "b.bias"]["gradient_norm"]) == 8.0
    assert len(found) == 2 * 2 * 3


def test_csv_says_how_the_ranks_ended(tmp_path: Path) -> None:
    first, second = read_csv(exported("csv", tmp_path / "out", job()), "ranks")
    assert [first[name] for name in ("rank", "host", "pid", "steps", "exit_code", "left_s")] == [
        "0", "node", "100", "2", "0", "",
    ]  # fmt: skip
    assert [second[name] for name in ("rank", "pid", "steps", "exit_code", "left_s")] == ["1", "101", "2", "1", "5.0"]


def test_entry_of_events_panel_is_exported_once(tmp_path: Path) -> None:
    rows = read_csv(exported("csv", tmp_path / "out", job()), "events")
    refused = [(row["rank"], row["text"]) for row in rows if "has no c" in row["text"]]
    assert [rank for rank, _ in refused] == ["0", "1"]
    # What is said of the job is of no rank.
    assert [row["rank"] for row in rows if "joined" in row["text"]] == [""]


def test_restarted_rank_has_rows_of_both_generations(tmp_path: Path) -> None:
    again = [
        joined(0, 1),
        of_rank(0, models(), 1),
        of_rank(0, norms(1.0, 1, 7.0, 1.0, 1.0, 1.0), 1),
        # From the former generation, too late.
        of_rank(0, norms(1.0, 1, 9.0, 1.0, 1.0, 1.0), 0),
    ]
    folder = exported("csv", tmp_path / "out", [*job()[:-1], *again])
    losses = [float(row["loss"]) for row in read_csv(folder, "steps") if row["rank"] == "0"]
    assert losses == [2.5, 2.0, 7.0]
    assert [(row["generation"], row["rank"]) for row in read_csv(folder, "ranks")] == [
        ("0", "0"),
        ("0", "1"),
        ("1", "0"),
    ]


def test_viewer_in_rank_has_rows_of_run(tmp_path: Path) -> None:
    own = rank_joined(0, at=2.0, is_viewers=True)
    start = ev.RunStarted(0.0, 0, "train.py", (), 100, "", "", "", None)
    events = [start, models(), own, joined(1), of_rank(1, models()), norms(3.0, 1, 2.5, 2.0, 3.0, 4.0)]
    events += [progress(3.25, 1, 1, forward=0.25), of_rank(1, norms(1.0, 1, 25.0, 1.0, 2.0, 3.0))]
    events += [of_rank(1, progress(1.25, 1, 1, forward=0.25)), ev.RunEnded(6.0, 1, 0, None)]
    folder = exported("csv", tmp_path / "out", events)
    rows = [(row["rank"], row["step"], row["loss"], row["time_s"]) for row in read_csv(folder, "steps")]
    assert sorted(rows) == [("0", "1", "2.5", "3.0"), ("1", "1", "25.0", "3.5")]
    of_both = sorted((row["rank"], row["parameter"]) for row in read_csv(folder, "parameters"))
    assert of_both == sorted((rank, path) for rank in "01" for path in ("scale", "b.weight", "b.bias"))
    assert [(row["rank"], row["exit_code"]) for row in read_csv(folder, "ranks")] == [("0", "0"), ("1", "")]


def test_parquet_has_a_column_for_the_rank(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = read_parquet(exported("parquet", tmp_path / "run.parquet", job()), "steps")
    assert sorted(table.column("rank").to_pylist()) == [0, 0, 1, 1]


def test_tensorboard_has_a_run_for_each_rank(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    folder = exported("tensorboard", tmp_path / "board", job())
    losses = [[(step, value) for step, _, value in read_scalars(folder / f"rank{rank}")["loss"]] for rank in range(2)]
    assert losses == [[(1, 2.5), (2, 2.0)], [(1, 25.0), (2, 20.0)]]
    assert read_scalars(folder / "rank1")["loss"][0][1] == pytest.approx(BEGAN + JOINED[1] + 1.0)
    with pytest.raises(ExportError, match="is there"):
        exported("tensorboard", folder, job())
    assert exported("tensorboard", folder, job(), replace=True) == folder


def test_no_file_of_rank_is_replaced_without_force(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    folder = exported("tensorboard", tmp_path / "board", job())
    (name,) = (path.name for path in folder.iterdir() if path.is_file())
    (folder / name).unlink()
    mine = folder / "rank1" / name
    mine.write_bytes(b"mine")
    with pytest.raises(ExportError, match="is there"):
        exported("tensorboard", folder, job())
    assert mine.read_bytes() == b"mine"


def trace_of(path: Path) -> list[dict[str, object]]:
    return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


def test_a_trace_has_a_process_for_each_rank(tmp_path: Path) -> None:
    entries = trace_of(exported("trace", tmp_path / "run.json", job()))
    names = {each["pid"]: each["args"]["name"] for each in entries if each["name"] == "process_name"}  # type: ignore[index]
    assert sorted(names.values()) == ["rank 0", "rank 1", "train.py"]
    of_pid = {name: pid for pid, name in names.items()}
    reports = [each["ts"] for each in entries if each["name"] == "step 2" and each["pid"] == of_pid["rank 1"]]
    # Reported 1.75 s after its start, and the phases before lasted 0.5 s.
    assert reports == [int(1e6 * (JOINED[1] + 1.25))]


@pytest.mark.parametrize("events", [job()[3:], [ev.RankJoined(1.0, 0, 10**9, 1, 0, "x", 1, 0), *job()[3:]]])
def test_ranks_that_never_joined_do_no_harm(tmp_path: Path, events: Sequence[ev.Event]) -> None:
    rows = read_csv(exported("csv", tmp_path / "out", events), "steps")
    assert sorted((row["rank"], row["step"]) for row in rows) == [("0", "1"), ("0", "2"), ("1", "1"), ("1", "2")]


def test_recording_of_one_rank_says_which_it_is(tmp_path: Path) -> None:
    recorded(tmp_path / "run.jsonl")
    text = (tmp_path / "run.jsonl").read_text(encoding="utf-8").replace('"rules":[]', '"rules":[],"rank":3', 1)
    (tmp_path / "run.jsonl").write_text(text, encoding="utf-8")
    FORMATS["csv"].write(Recording(tmp_path / "run.jsonl"), tmp_path / "out", False)
    assert {row["rank"] for row in read_csv(tmp_path / "out", "steps")} == {"3"}
    pytest.importorskip("tensorboard")
    FORMATS["tensorboard"].write(Recording(tmp_path / "run.jsonl"), tmp_path / "board", False)
    assert "loss" in read_scalars(tmp_path / "board")
