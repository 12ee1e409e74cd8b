"""Each format of a recording, read by an independent reader, has the values of the recording's events."""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
from collections.abc import Sequence
from dataclasses import fields
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

import pytest
from helpers.exports import read_parquet, read_scalars
from helpers.fakes import Node, device_sample
from helpers.optimizer_runs import gan, linear, loss_at, norm_at, owner, run_of, steps
from helpers.optimizer_runs import models as listed_models
from helpers.recordings import record

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.device_memory import DeviceMemory
from gradtui.protocol.vocabulary import (
    GroupSettings,
    MemoryBytes,
    ModelInfo,
    ModuleInfo,
    OptimizerInfo,
    ParameterInfo,
    Phase,
)
from gradtui.records.export.formats import FORMATS, TABLES, ExportError, Kind, row_maker
from gradtui.records.recording import Recording
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

BEGAN = 1_700_000_000.5
HOSTILE = '=cmd|"/c calc",\x1b[31m\nü\ud800'
"""A formula, quotes, a separator, a control sequence, a line break, half of a surrogate pair."""
CLEAN = '=cmd|"/c calc",·[31m·ü?'


def models(name: str = "b") -> ev.ModelsFound:
    modules = (ModuleInfo("", "net", "Net", 0, -1, 0, 1, 3, 2), ModuleInfo(name, name, "Linear", 1, 0, 1, 2, 2, 1))
    parameters = (
        ParameterInfo("scale", ("scale",), (), "float32", 1, 4, 0),
        ParameterInfo(f"{name}.weight", (f"{name}.weight",), (2, 3), "float32", 6, 24, 1),
        ParameterInfo(f"{name}.bias", (f"{name}.bias",), (2,), "float32", 2, 8, 1),
    )
    return ev.ModelsFound(0.5, 0, (ModelInfo("net", "Net", 0, 1),), modules, parameters, listing=1)


def progress(at: float, step: int, steps: int, **seconds: float) -> ev.Progress:
    times = tuple(ev.PhaseTime(Phase(phase), spent, steps) for phase, spent in seconds.items())
    return ev.Progress(at, step, steps, steps, 0, (steps,), times, 0.0625, 10, 20)


def memory(at: float, step: int, phase: Phase, gradients: int, peak: int | None) -> ev.MemoryMeasured:
    held = MemoryBytes(36, 0, gradients, 72, 500 - gradients, 1000, 1608 + 0, 0)
    return ev.MemoryMeasured(at, step, phase, held, peak, False, True, (1,))


def norms(at: float, step: int, loss: float, *each: float | None) -> ev.GradientsMeasured:
    known = [norm for norm in each if norm is not None]
    return ev.GradientsMeasured(at, step, math.hypot(*known), loss, each, 7.5, 1.0, listing=1)


def rates(at: float, step: int, rate: float) -> ev.GroupsRead:
    return ev.GroupsRead(at, step, ((GroupSettings(rate, 0.01),),))


EVENTS: list[ev.Event] = [
    ev.RunStarted(0.0, 0, "train.py", (), 7, "", "", "", None),
    models(),
    ev.OptimizersFound(0.5, 0, (OptimizerInfo("SGD", 1, (0, 1, 2), 0, (0, 0, 0)),)),
    ev.ParametersClassified(0.6, 1, "TTC", "110", listing=1),
    rates(0.75, 1, 0.5),
    norms(1.0, 1, 2.5, 2.0, 3.0, 4.0),
    progress(1.25, 1, 1, load=0.25, forward=0.25, backward=0.5),
    rates(1.4, 2, 0.25),
    norms(1.5, 2, 2.0, 1.0, 6.0, 8.0),
    # Another listing: no row.
    ev.GradientsMeasured(1.5, 2, 1.0, 1.0, (9.0, 9.0, 9.0), listing=7),
    memory(1.625, 2, Phase.FORWARD, 0, 2000),
    memory(1.75, 2, Phase.BACKWARD, 36, None),
    ev.PauseChanged(1.75, 2, True, "breakpoint"),
    ev.PauseChanged(5.75, 2, False),
    norms(5.875, 3, math.nan, None, math.inf, 1.0),
    progress(6.375, 3, 2, forward=0.75, backward=0.25),
    ev.CommandApplied(6.25, 3, SetTrainable(4, "b", False), "b frozen", (1, 2)),
    ev.CommandRejected(6.3, 3, SetTrainable(5, "c", False), "there is no c"),
    ev.DeviceSampled(6.5, 3, "host", 4096, 8192, None, None, None, None, None, None),
    ev.RunEnded(7.0, 3, 0, None),
]


def recorded(path: Path, events: Sequence[ev.Event] = EVENTS) -> Path:
    """Write a recording with these events."""
    return record(path, events, began=BEGAN, rules=[])


def exported(kind: str, target: Path, events: Sequence[ev.Event] = EVENTS, *, replace: bool = False) -> Path:
    """Write a recording of these events in a format, and return the path of the result."""
    source = recorded(target.parent / "run.jsonl", events)
    FORMATS[kind].check(Recording(source), target, replace)
    FORMATS[kind].write(Recording(source), target, replace)
    return target


def read_csv(folder: Path, table: str) -> list[dict[str, str]]:
    with open(folder / f"{table}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, strict=True))


def read_trace(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    whole = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    entries: list[dict[str, Any]] = whole["traceEvents"]
    assert whole["otherData"]["script"] == "train.py"
    return entries


def test_csv_has_a_row_for_each_measured_step(tmp_path: Path) -> None:
    rows = read_csv(exported("csv", tmp_path / "out"), "steps")
    assert [int(row["step"]) for row in rows] == [1, 2, 3]
    assert [float(row["loss"]) for row in rows[:2]] == [2.5, 2.0]
    assert math.isnan(float(rows[2]["loss"]))
    assert [float(row["gradient_norm"]) for row in rows] == [math.sqrt(4 + 9 + 16), math.sqrt(1 + 36 + 64), math.inf]
    assert [float(row["learning_rate"]) for row in rows] == [0.5, 0.25, 0.25]
    # Loading is no part of a step. The second report is about two steps.
    assert [float(row["step_time_s"]) for row in rows] == [0.75, 0.5, 0.5]
    assert {row["gradient_norm_before_clipping"] for row in rows} == {"7.5"}


def test_csv_has_row_per_step_of_each_optimizer(tmp_path: Path) -> None:
    """As of a run whose steps are short: the losses of steps that are alike, norms of some, and other steps' own figures."""
    figures = (
        ev.StepFigures(2, 0, None, total=3.0),
        ev.StepFigures(4, 0, None, total=5.0, before_clipping=10.0, clipped_at=5.0),
        ev.StepFigures(5, 1, 0.75, "mean", 7.0),
        ev.StepFigures(6, 0, 0.5, "sum"),
    )
    events = [
        *EVENTS[:3],
        ev.StepsMeasured(1.0, 6, figures, (ev.StepLosses(0, (1, 2, 3, 4), (4.0, 3.5, 3.0, 2.5)),)),
        progress(1.25, 6, 6, forward=0.75, backward=0.5),
        # The norms of all parameters at the end, whose step has its row.
        ev.GradientsMeasured(1.5, 4, None, None, (1.0, 2.0, 3.0), listing=1),
        ev.RunEnded(2.0, 6, 0, None),
    ]
    rows = read_csv(exported("csv", tmp_path / "out", events), "steps")
    assert [
        (row["step"], row["optimizer"], row["loss"], row["loss_of_backwards"], row["gradient_norm"]) for row in rows
    ] == [
        ("1", "0", "4.0", "", ""),
        ("2", "0", "3.5", "", "3.0"),
        ("3", "0", "3.0", "", ""),
        ("4", "0", "2.5", "", "5.0"),
        ("5", "1", "0.75", "mean", "7.0"),
        ("6", "0", "0.5", "sum", ""),
    ]
    assert [row["gradient_norm_before_clipping"] for row in rows] == ["", "", "", "10.0", "", ""]
    norms_of_parameters = read_csv(tmp_path / "out", "gradient_norms")
    assert [(row["step"], row["gradient_norm"]) for row in norms_of_parameters] == [
        ("4", "1.0"),
        ("4", "2.0"),
        ("4", "3.0"),
    ]


def test_step_with_late_norm_has_one_row(tmp_path: Path) -> None:
    """A device answers some steps later. The last norms have no report after them."""
    losses = [
        ev.StepLosses(0, tuple(range(first, first + 4)), tuple(float(step) for step in range(first, first + 4)))
        for first in (1, 5)
    ]
    late = [ev.StepFigures(step, 0, None, total=10.0 * step) for step in range(1, 9)]
    events = [
        *EVENTS[:3],
        ev.StepsMeasured(1.0, 4, tuple(late[:2]), (losses[0],)),
        progress(1.25, 4, 4, forward=1.0),
        ev.StepsMeasured(2.0, 8, tuple(late[2:6]), (losses[1],)),
        progress(2.25, 8, 4, forward=2.0),
        ev.StepsMeasured(2.5, 8, tuple(late[6:])),
        ev.RunEnded(3.0, 8, 0, None),
    ]
    rows = read_csv(exported("csv", tmp_path / "out", events), "steps")
    assert [(int(row["step"]), float(row["loss"]), float(row["gradient_norm"])) for row in rows] == [
        (step, float(step), 10.0 * step) for step in range(1, 9)
    ]
    assert [float(row["step_time_s"]) for row in rows] == [0.25] * 4 + [0.5] * 4


def test_steps_by_optimizer_are_in_their_order(tmp_path: Path) -> None:
    losses = tuple(ev.StepLosses(first, (1 + first, 3 + first, 5 + first), (0.5,) * 3) for first in (0, 1))
    events = [*EVENTS[:3], ev.StepsMeasured(1.0, 6, (), losses), progress(1.25, 4, 4, forward=1.0)]
    events += [progress(1.5, 6, 2, forward=1.0), ev.RunEnded(3.0, 6, 0, None)]
    rows = read_csv(exported("csv", tmp_path / "out", events), "steps")
    assert [(row["step"], row["optimizer"]) for row in rows] == [
        (str(step), str((step - 1) % 2)) for step in range(1, 7)
    ]


def test_rows_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording that says nothing of the time of its steps."""
    monkeypatch.setattr(row_maker, "_MAX_WAITING", 10)
    state = RunState()
    maker = row_maker.RowMaker(state, has_norms=False)
    made = []
    for step in range(1, 101):
        event = ev.StepsMeasured(1.0, step, (ev.StepFigures(step, 0, 0.5),))
        apply(state, event)
        made += [row["step"] for table, row in maker.rows_of(event) if table is row_maker.tables.STEPS]
        assert step - len(made) <= 10
    assert [*made, *(row["step"] for _, row in maker.waiting_rows())] == [*range(1, 101)]


def test_losses_of_several_optimizers_are_separate_series(tmp_path: Path) -> None:
    scalars = read_scalars(exported("tensorboard", tmp_path / "tb", gan(8)))
    for name, optimizer, own in (("Discriminator", 1, (1, 3, 5, 7)), ("Generator", 0, (2, 4, 6, 8))):
        for tag, value_at in (("loss", loss_at), ("gradient_norm/total", norm_at)):
            assert [(step, value) for step, _, value in scalars[f"{tag}/{name}"]] == [
                (step, pytest.approx(value_at(optimizer, step))) for step in own
            ]
    assert not {"loss", "gradient_norm/total"} & scalars.keys()
    entries = read_trace(exported("trace", tmp_path / "trace.json", gan(8)))
    for name, optimizer, own in (("Discriminator", 1, (1, 3, 5, 7)), ("Generator", 0, (2, 4, 6, 8))):
        of = [each["args"]["loss"] for each in entries if each["name"] == f"loss of {name}"]
        assert of == [loss_at(optimizer, step) for step in own]
    assert not any(each["name"] in ("loss", "gradient norm") for each in entries)
    rows = read_csv(exported("csv", tmp_path / "out", gan(8)), "steps")
    assert [row["optimizer_name"] for row in rows] == ["Discriminator", "Generator"] * 4


def test_later_optimizer_has_separate_series(tmp_path: Path) -> None:
    """As in training in stages. A new optimizer of the same parameters continues the series."""
    listed = listed_models(*(Node(name, name, (), (linear("net"),)) for name in ("encoder", "head")))
    encoder, head = owner(listed, "encoder"), owner(listed, "head")
    gone = replace_fields(encoder, parameters=(), unknown_parameters=2, freed=True)
    events = run_of(
        listed,
        [encoder],
        steps([0] * 3, 1),
        [ev.OptimizersFound(2.0, 3, (gone, encoder))],
        steps([1] * 3, 2, first=4),
        [ev.OptimizersFound(2.0, 6, (gone, encoder, head))],
        steps([2] * 3, 3, first=7),
        [ev.RunEnded(9.0, 9, 0, None)],
    )
    scalars = read_scalars(exported("tensorboard", tmp_path / "tb", events))
    assert [step for step, *_ in scalars["loss"]] == [1, 2, 3, 4, 5, 6]
    assert [step for step, *_ in scalars["loss/head"]] == [7, 8, 9]


def test_learning_rate_is_of_optimizer_of_step(tmp_path: Path) -> None:
    events = gan(4)
    events.insert(3, ev.GroupsRead(0.7, 0, ((GroupSettings(0.5, 0.0),), (GroupSettings(0.25, 0.0),))))
    rows = read_csv(exported("csv", tmp_path / "out", events), "steps")
    assert [float(row["learning_rate"]) for row in rows] == [0.25, 0.5, 0.25, 0.5]


def test_rate_read_late_is_unknown_in_between(tmp_path: Path) -> None:
    """The losses of eight steps arrive before the change, which came after step 4 and was read at step 7."""
    groups = ((GroupSettings(0.125, 0.01),),)
    events = [
        *EVENTS[:5],
        ev.StepsMeasured(1.0, 8, (), (ev.StepLosses(0, tuple(range(1, 9)), (0.5,) * 8),)),
        ev.GroupsRead(1.1, 7, groups, before=4),
        ev.RunEnded(2.0, 8, 0, None),
    ]
    out = exported("csv", tmp_path / "out", events)
    expected = ["0.5"] * 4 + ["", "", "0.125", "0.125"]
    assert [row["learning_rate"] for row in read_csv(out, "steps")] == expected
    rows = read_csv(out, "groups")
    assert [(row["learning_rate"], row["weight_decay"]) for row in rows] == [(rate, "0.01") for rate in expected]


def test_csv_has_memory_and_spikes_of_each_step(tmp_path: Path) -> None:
    totals = (ev.StepTotals(1, 100, 80, 40, 100), ev.StepTotals(2, 900, None, 40, 950, True))
    events = [
        *EVENTS[:3],
        ev.StepMemoryMeasured(1.0, 2, totals),
        ev.MemorySpikeFound(1.1, 2, Phase.FORWARD, 950, 100, 1),
        ev.RunEnded(2.0, 2, 0, None),
    ]
    out = exported("csv", tmp_path / "out", events)
    names = ("step", "forward_bytes", "backward_bytes", "optimizer_bytes", "peak_bytes", "peak_is_exact")
    assert [tuple(row[name] for name in names) for row in read_csv(out, "step_memory")] == [
        ("1", "100", "80", "40", "100", "0"),
        ("2", "900", "", "40", "950", "1"),
    ]
    (spike,) = [row for row in read_csv(out, "events") if row["kind"] == "spike"]
    assert (spike["step"], spike["time_s"]) == ("2", "1.1")
    assert "forward" in spike["text"]


def test_csv_has_the_norms_that_were_measured(tmp_path: Path) -> None:
    rows = read_csv(exported("csv", tmp_path / "out"), "gradient_norms")
    found = [(int(row["step"]), row["module"], row["parameter"], float(row["gradient_norm"])) for row in rows]
    assert found == [
        (1, "", "scale", 2.0),
        (1, "b", "b.weight", 3.0),
        (1, "b", "b.bias", 4.0),
        (2, "", "scale", 1.0),
        (2, "b", "b.weight", 6.0),
        (2, "b", "b.bias", 8.0),
        (3, "b", "b.weight", math.inf),
        (3, "b", "b.bias", 1.0),
    ]


def test_norm_that_two_events_have_is_one_row(tmp_path: Path) -> None:
    """In a GAN the event of one optimizer's step repeats the norms of the other's."""
    first = ev.GradientsMeasured(1.0, 1, 2.0, None, (2.0, None, None), norm_steps=(1, None, None), listing=1)
    second = ev.GradientsMeasured(2.0, 2, 3.0, None, (2.0, 3.0, None), norm_steps=(1, 2, None), listing=1)
    events = [*EVENTS[:3], first, second, EVENTS[-1]]
    rows = read_csv(exported("csv", tmp_path / "out", events), "gradient_norms")
    assert [(row["step"], row["parameter"]) for row in rows] == [("1", "scale"), ("2", "b.weight")]


def test_csv_has_memory_pauses_changes_and_the_run(tmp_path: Path) -> None:
    folder = exported("csv", tmp_path / "out")
    forward, backward = read_csv(folder, "memory")
    assert (forward["phase"], forward["gradients_bytes"], forward["peak_bytes"]) == ("forward", "0", "2000")
    assert (backward["activations_bytes"], backward["peak_bytes"], backward["peak_is_exact"]) == ("464", "", "")
    (pause,) = read_csv(folder, "pauses")
    assert (pause["time_s"], pause["duration_s"], pause["reason"]) == ("1.75", "4.0", "breakpoint")
    changes = [(row["step"], row["time_s"], row["command"], row["status"]) for row in read_csv(folder, "changes")]
    assert changes == [("3", "6.25", "freeze b", "applied"), ("3", "6.3", "freeze c", "refused")]
    assert {"name": "script", "value": "train.py"} in read_csv(folder, "run")
    states = [(row["parameter"], row["is_trainable"], row["state"]) for row in read_csv(folder, "parameters")]
    assert states[0] == ("scale", "1", "trains")
    assert states[2] == ("b.bias", "0", "off")
    assert {path.name for path in folder.iterdir()} == {f"{table.name}.csv" for table in TABLES}


def test_no_name_is_formula_or_control_sequence(tmp_path: Path) -> None:
    events = [EVENTS[0], models(HOSTILE), *EVENTS[2:-1], progress(6.5, 4, 1, eval=-0.0625), EVENTS[-1]]
    cells = [row["module"] for row in read_csv(exported("csv", tmp_path / "out", events), "gradient_norms")]
    assert set(cells) == {"", f"'{CLEAN}"}
    numbers = read_csv(tmp_path / "out", "times")
    assert numbers[2]["eval_s"] == "-0.0625"
    table = read_parquet(exported("parquet", tmp_path / "p.parquet", events))
    assert CLEAN in table["module"].to_pylist()
    tags = read_scalars(exported("tensorboard", tmp_path / "tb", events))
    assert f"gradient_norm/{CLEAN}" in tags


def test_parquet_has_the_rows_of_csv_with_types(tmp_path: Path) -> None:
    folder = exported("csv", tmp_path / "out")
    whole = read_parquet(exported("parquet", tmp_path / "run.parquet"))
    types = {Kind.INTEGER: "int64", Kind.NUMBER: "double", Kind.TEXT: "string", Kind.FLAG: "bool"}
    for table in TABLES:
        rows = read_csv(folder, table.name)
        part = read_parquet(tmp_path / "run.parquet", table.name)
        assert part.num_rows == len(rows)
        for name, kind in table.columns.items():
            assert str(whole.schema.field(name).type) == types[kind]
            for cell, value in zip((row[name] for row in rows), part[name].to_pylist(), strict=True):
                expected = "" if value is None else str(int(value)) if kind is Kind.FLAG else str(value)
                assert cell == expected, (table.name, name)
        others = set(whole.column_names) - set(table.columns) - {"table"}
        assert all(part[name].null_count == part.num_rows for name in others)
    metadata = json.loads(whole.schema.metadata[b"gradtui"])
    assert metadata["script"] == "train.py"


def test_tensorboard_has_scalars_at_steps_and_times(tmp_path: Path) -> None:
    found = read_scalars(exported("tensorboard", tmp_path / "tb"))
    assert found["loss"][:2] == [(1, BEGAN + 1.0, 2.5), (2, BEGAN + 1.5, 2.0)]
    assert math.isnan(found["loss"][2][2])
    assert found["gradient_norm/total"][0] == (1, BEGAN + 1.0, pytest.approx(math.sqrt(29)))
    # The norm of two vectors together.
    assert found["gradient_norm/b"] == [
        (1, BEGAN + 1.0, 5.0),
        (2, BEGAN + 1.5, 10.0),
        (3, BEGAN + 5.875, math.inf),
    ]
    assert found["gradient_norm/(root)"] == [(1, BEGAN + 1.0, 2.0), (2, BEGAN + 1.5, 1.0)]
    assert [(step, value) for step, _, value in found["lr/0_SGD/group_0"]] == [(1, 0.5), (2, 0.25), (3, 0.25)]
    assert found["step_time"] == [(1, BEGAN + 1.25, 0.75), (3, BEGAN + 6.375, 0.5)]
    assert found["phase_time/forward"] == [(1, BEGAN + 1.25, 0.25), (3, BEGAN + 6.375, 0.375)]
    # The most at an end of a phase of the step.
    assert found["memory/gradients"] == [(2, BEGAN + 1.75, 36.0)]
    assert found["memory/activations"] == [(2, BEGAN + 1.75, 500.0)]
    assert found["memory/peak"] == [(2, BEGAN + 1.75, 2000.0)]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_trace_has_fields_that_format_requires(name: str, tmp_path: Path) -> None:
    entries = read_trace(exported("trace", tmp_path / name))
    required = {"X": {"ts", "dur", "tid"}, "C": {"ts", "args"}, "i": {"ts", "s", "tid"}, "M": {"args"}}
    for entry in entries:
        assert required[entry["ph"]] | {"name", "pid"} <= entry.keys()
        assert all(isinstance(value, (int, float)) for value in entry["args"].values() if entry["ph"] == "C")


def slices(entries: list[dict[str, Any]], kind: str) -> list[tuple[str, float, float]]:
    return [(each["name"], each["ts"], each["ts"] + each["dur"]) for each in entries if each.get("cat") == kind]


def test_slices_of_trace_nest_and_follow_each_other(tmp_path: Path) -> None:
    entries = read_trace(exported("trace", tmp_path / "trace.json"))
    reports, phases = slices(entries, "report"), slices(entries, "phase")
    assert [name for name, *_ in reports] == ["step 1", "steps 2–3"]
    # Microseconds. The phases follow each other, but for a pause of 4 s; the second report was made 125 ms after its phases.
    assert [(start, end) for _, start, end in reports] == [(250_000.0, 1_250_000.0), (5_250_000.0, 6_250_000.0)]
    assert phases == [
        ("load", 250_000.0, 500_000.0),
        ("forward", 500_000.0, 750_000.0),
        ("backward", 750_000.0, 1_250_000.0),
        ("forward", 5_250_000.0, 6_000_000.0),
        ("backward", 6_000_000.0, 6_250_000.0),
    ]
    assert slices(entries, "pause") == [("paused", 1_750_000.0, 5_750_000.0)]


def test_no_rounding_lets_phase_end_after_its_report(tmp_path: Path) -> None:
    """Perfetto multiplies the times by 1,000, and cuts off the rest. It drops slices that overlap."""
    reports = [
        progress(0.7 + step * 1.1000003, step, 1, forward=0.333333333, backward=0.7666669) for step in range(1, 99)
    ]
    entries = read_trace(exported("trace", tmp_path / "trace.json", [*EVENTS[:3], *reports, EVENTS[-1]]))
    spans = {
        kind: [
            (int(each["ts"] * 1000), int(each["ts"] * 1000) + int(each["dur"] * 1000))
            for each in entries
            if each.get("cat") == kind
        ]
        for kind in ("report", "phase")
    }
    assert len(spans["report"]) == 98
    at = 0
    for start, end in spans["report"]:
        assert start >= at
        at = start
        while spans["phase"] and spans["phase"][0][0] < end:
            begun, ended = spans["phase"].pop(0)
            assert at <= begun <= ended <= end
            at = ended
    assert not spans["phase"]


def test_a_trace_marks_changes_and_counts_memory(tmp_path: Path) -> None:
    entries = read_trace(exported("trace", tmp_path / "trace.json"))
    marks = [(each["cat"], each["ts"]) for each in entries if each["ph"] == "i"]
    assert ("applied", 6_250_000.0) in marks
    assert ("rejected", 6_300_000.0) in marks
    held = [(each["ts"], each["args"]) for each in entries if each["name"].startswith("memory at")]
    assert [at for at, _ in held] == [1_625_000.0, 1_750_000.0]
    assert [sum(values.values()) for _, values in held] == [1608, 1608]
    # No NaN, which JSON does not have.
    assert [each["args"]["loss"] for each in entries if each["name"] == "loss"] == [2.5, 2.0]


def test_phases_longer_than_elapsed_time_are_scaled(tmp_path: Path) -> None:
    """Where a forward was counted as evaluation before, the next report takes that time back."""
    late = [*EVENTS[:3], progress(1.0, 1, 1, forward=1.0), progress(2.0, 2, 1, forward=3.0, eval=-2.0, backward=1.0)]
    phases = slices(read_trace(exported("trace", tmp_path / "trace.json", [*late, EVENTS[-1]])), "phase")
    assert phases == [
        ("forward", 0.0, 1_000_000.0),
        ("forward", 1_000_000.0, 1_750_000.0),
        ("backward", 1_750_000.0, 2_000_000.0),
    ]


@pytest.mark.parametrize(("kind", "name"), [("csv", "steps.csv"), ("parquet", ""), ("trace", "")])
def test_nothing_is_replaced_unless_user_says_so(kind: str, name: str, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir() if name else None
    (target / name).write_text("mine")
    with pytest.raises(ExportError, match="is there; choose another name, or give --force"):
        exported(kind, target)
    assert (target / name).read_text() == "mine"
    exported(kind, target, replace=True)
    assert (target / name).read_bytes() != b"mine"
    (other,) = {path.name for path in tmp_path.iterdir()} - {"out", "run.jsonl"} or {""}
    assert not other


def test_other_files_of_a_directory_stay(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    exported("csv", tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*(f"{t.name}.csv" for t in TABLES), "mine.txt"}


@pytest.mark.parametrize("kind", list(FORMATS))
def test_full_disk_is_one_line_and_leaves_nothing(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource
    import signal

    source = recorded(
        tmp_path / "run.jsonl", [*EVENTS[:-1], *(norms(7.0, at, 1.0, 1.0, 1.0, 1.0) for at in range(4, 3000))]
    )
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(ExportError, match=f"cannot write .*out: {os.strerror(27)}"):
            FORMATS[kind].write(Recording(source), tmp_path / "out", False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


def test_new_directory_has_permissions_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    modes = [path.stat().st_mode for path in (exported("csv", tmp_path / "out"), tmp_path / "other")]
    assert modes[0] == modes[1]


def test_damaged_event_is_line_in_table_of_events(tmp_path: Path) -> None:
    lines = recorded(tmp_path / "run.jsonl").read_text().splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith('["GradientsMeasured"'))
    row = json.loads(lines[at])
    row[row.index([2.0, 3.0, 4.0])] = True
    lines[at] = json.dumps(row)
    (tmp_path / "damaged.jsonl").write_text("\n".join(lines) + "\n")
    FORMATS["csv"].write(Recording(tmp_path / "damaged.jsonl"), tmp_path / "out", False)
    noted = [row["text"] for row in read_csv(tmp_path / "out", "events") if row["kind"] == "export"]
    assert noted[0].startswith("GradientsMeasured ")
    assert "TypeError" in noted[0]
    assert {row["step"] for row in read_csv(tmp_path / "out", "gradient_norms")} == {"2", "3"}


def test_times_of_a_device_are_a_table(tmp_path: Path) -> None:
    timed = ev.DeviceTimesMeasured(2.0, 1, ((Phase.FORWARD, 0.25), (Phase.BACKWARD, 0.5)), 0.125)
    (row,) = read_csv(exported("csv", tmp_path / "out", [*EVENTS[:-1], timed, EVENTS[-1]]), "device_times")
    assert {name: value for name, value in row.items() if value} == {
        "step": "1", "time_s": "2.0", "forward_s": "0.25", "backward_s": "0.5", "overhead_s": "0.125",
    }  # fmt: skip


@pytest.mark.parametrize("kind", list(FORMATS))
def test_numbers_too_large_for_format_are_left_out(kind: str, tmp_path: Path) -> None:
    huge = 1 << 63  # one more than 64 bits with a sign can hold, and the largest that a recording may have
    events = [
        *EVENTS[:3],
        ev.DeviceSampled(2.0, huge, "host", huge, huge, None, None, None, None, None, None),
        ev.Progress(2.5, huge, huge, 1, 0, (1,), (ev.PhaseTime(Phase.FORWARD, 1.0, 1),), 0.0, 1, 1),
        ev.Progress(huge, huge, huge, 1, 0, (1,), (ev.PhaseTime(Phase.FORWARD, math.inf, 1),), math.nan, 1, 1),
        norms(math.nan, 1, huge, 1.0, 2.0, 3.0),
        EVENTS[-1],
    ]
    exported(kind, tmp_path / "out", events)
    if kind == "csv":
        (row,) = read_csv(tmp_path / "out", "machine")
        assert (row["step"], row["host_rss_bytes"], row["time_s"]) == ("", "", "2.0")


def on_two_devices() -> list[ev.Event]:
    """A sample of two devices, of which the second holds most of the models' bytes."""
    sample = device_sample(2.0, 1)
    figures = {each.name: getattr(sample, each.name) for each in fields(ev.DeviceFigures)}
    first = ev.DeviceFigures(**figures | {"index": 0, "allocated": 128, "reserved": 256, "utilisation": 0.25})
    return [*EVENTS[:3], replace_fields(sample, index=1, others=(first,)), EVENTS[-1]]


def test_each_device_has_its_rows(tmp_path: Path) -> None:
    rows = read_csv(exported("csv", tmp_path / "out", on_two_devices()), "machine")
    names = ("step", "time_s", "device", "allocated_bytes", "reserved_bytes", "utilisation_fraction")
    home = device_sample()
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("1", "2.0", "1", str(home.allocated), str(home.reserved), "0.83"),
        ("1", "2.0", "0", "128", "256", "0.25"),
    ]
    # The host is no device's: it is there once.
    assert [row["host_rss_bytes"] for row in rows] == [str(home.host_rss), ""]


def test_sum_of_peaks_of_devices_is_upper_bound(tmp_path: Path) -> None:
    devices = DeviceMemory(0, 40, 60), DeviceMemory(1, 40, 50)
    totals = [ev.StepTotals(step, 80, 80, 80, 110, peak_exact=step > 1) for step in (1, 2, 3)]
    totals[2] = replace_fields(totals[2], devices=devices)
    phase = replace_fields(memory(1.5, 3, Phase.FORWARD, 0, 110), peak_exact=True, devices=devices)
    events = [*EVENTS[:3], phase, ev.StepMemoryMeasured(2.0, 3, tuple(totals)), EVENTS[-1]]
    folder = exported("csv", tmp_path / "out", events)
    assert [(row["peak_bound"], row["peak_is_exact"]) for row in read_csv(folder, "step_memory")] == [
        ("at least", "0"), ("exact", "1"), ("at most", "0"),
    ]  # fmt: skip
    assert [row["peak_bound"] for row in read_csv(folder, "memory")] == ["at most"]


def test_each_device_has_series_of_its_own(tmp_path: Path) -> None:
    """Whichever holds most of the models' bytes: that may change."""
    scalars = read_scalars(exported("tensorboard", tmp_path / "tb", on_two_devices()))
    host, *devices = (
        f"machine/{name}" for name in ("host_rss_bytes", "cuda:1/reserved_bytes", "cuda:0/reserved_bytes")
    )
    home = device_sample()
    assert [[value for *_, value in scalars[tag]] for tag in (host, *devices)] == [
        [home.host_rss], [pytest.approx(home.reserved)], [256],
    ]  # fmt: skip
    entries = read_trace(exported("trace", tmp_path / "trace.json", on_two_devices()))
    found = {each["name"]: each["args"]["reserved"] for each in entries if each["name"].startswith("device memory")}
    assert found == {"device memory of cuda:1 (bytes)": home.reserved, "device memory of cuda:0 (bytes)": 256}


STEP_TOTALS = ev.StepMemoryMeasured(
    6.75, 3, tuple(ev.StepTotals(step, 100 * step, 90 * step, 80 * step, 105 * step, step == 3) for step in (1, 2, 3))
)
LATER_TOTALS = ev.StepMemoryMeasured(6.875, 5, (ev.StepTotals(4, None, 45, 40, 45), ev.StepTotals(5, 50, 45, 40, None)))
WITH_TOTALS = [*EVENTS[:-1], STEP_TOTALS, LATER_TOTALS, EVENTS[-1]]
ENDS = ("forward", "backward", "optimizer")


def test_csv_has_the_memory_of_every_step(tmp_path: Path) -> None:
    rows = read_csv(exported("csv", tmp_path / "out", WITH_TOTALS), "step_memory")
    found = [tuple(row[f"{name}_bytes"] for name in (*ENDS, "peak")) for row in rows]
    assert found == [
        ("100", "90", "80", "105"), ("200", "180", "160", "210"), ("300", "270", "240", "315"),
        ("", "45", "40", "45"), ("50", "45", "40", ""),
    ]  # fmt: skip
    assert [row["peak_is_exact"] for row in rows] == ["0", "0", "1", "0", ""]
    # The first report has no earlier one. The steps of the second share the time since.
    assert [float(row["time_s"]) for row in rows] == [6.75, 6.75, 6.75, 6.8125, 6.875]


def test_time_of_pause_is_not_that_of_steps(tmp_path: Path) -> None:
    late = ev.StepMemoryMeasured(100.0, 5, LATER_TOTALS.totals)
    rows = read_csv(exported("csv", tmp_path / "out", [*EVENTS[:-1], STEP_TOTALS, late, EVENTS[-1]]), "step_memory")
    assert [float(row["time_s"]) for row in rows[3:]] == [99.5, 100.0]


def test_tensorboard_has_the_memory_of_every_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    found = read_scalars(exported("tensorboard", tmp_path / "out", WITH_TOTALS))
    assert [(step, value) for step, _, value in found["step_memory/peak"]] == [(1, 105), (2, 210), (3, 315), (4, 45)]
    assert [(step, value) for step, _, value in found["step_memory/forward"]] == [(1, 100), (2, 200), (3, 300), (5, 50)]


def test_a_trace_counts_the_memory_of_every_step(tmp_path: Path) -> None:
    entries = read_trace(exported("trace", tmp_path / "trace.json", WITH_TOTALS))
    ends = [each["args"] for each in entries if each["name"] == "memory of each step (bytes)"]
    assert ends[:3] == [dict(zip(ENDS, (100 * step, 90 * step, 80 * step))) for step in (1, 2, 3)]
    assert ends[3:] == [{"backward": 45, "optimizer": 40}, {"forward": 50, "backward": 45, "optimizer": 40}]
    peaks = [(each["ts"], each["args"]) for each in entries if each["name"] == "memory peak of each step (bytes)"]
    assert peaks[2:] == [(6_750_000, {"peak": 315}), (6_812_500, {"peak": 45})]
