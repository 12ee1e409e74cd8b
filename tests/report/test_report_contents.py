"""What a report says, as data."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.fakes import MIB, Node, coop_model, finding, found, large_model
from helpers.states import state_after
from helpers.timed_steps import times
from report_runs import ended, record_run

from gradtui.protocol import events as ev
from gradtui.protocol.freezes import RowsInForce
from gradtui.protocol.json_objects import from_object, to_object
from gradtui.protocol.run_summary import RunSummary
from gradtui.protocol.vocabulary import GroupSettings, Holding, MemoryBytes, OptimizerInfo, ParameterState, Phase
from gradtui.records.export.module_table import FEW_ROWS, MAX_ROWS, module_table
from gradtui.records.export.rule_pages import rule_page
from gradtui.records.report.contents import Contents, contents_of
from gradtui.records.report.page import page
from gradtui.records.report.recorded_run import MAX_RATES, recorded_run, run_of
from gradtui.run.diagnostics import all_rules
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import duration_text


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return contents_of(recorded_run(record_run(tmp_path_factory.mktemp("recording") / "run.jsonl", ended())))


def test_report_of_written_summary_is_the_same(tmp_path: Path) -> None:
    run = recorded_run(record_run(tmp_path / "run.jsonl", ended(1, "Traceback\nValueError: boom")))
    read = from_object(RunSummary, json.loads(json.dumps(to_object(run.summary), allow_nan=False)))
    assert contents_of(replace(run, summary=read)) == contents_of(run)


def numbered_layers(layers: int) -> ev.ModelsFound:
    """Numbered layers of two parameters, without parts of their own."""
    nodes = (Node(str(each), "Linear", (("weight", (2, 2)), ("bias", (2,)))) for each in range(layers))
    return found(Node("Net", "Net", (), (Node("layers", "Sequential", (), tuple(nodes)),)))


def adapted_blocks(blocks: int) -> ev.ModelsFound:
    """Numbered blocks of a frozen base and a trainable adapter."""
    nodes = (
        Node(
            str(each),
            "Block",
            (),
            (Node("base", "Linear", (("weight", (8, 8)),)), Node("adapter", "Adapter", (("a", (2, 8)), ("b", (8, 2))))),
        )
        for each in range(blocks)
    )
    return found(Node("Net", "Net", (), (Node("blocks", "ModuleList", (), tuple(nodes)),)))


def classified(model: ev.ModelsFound, trains: str) -> ev.ParametersClassified:
    flags = "".join(str(int(trains in info.path)) for info in model.parameters)
    return ev.ParametersClassified(1.0, 2, flags.replace("1", "T").replace("0", "F"), flags)


def test_every_parameter_is_in_one_row(contents: Contents) -> None:
    model = coop_model()
    leaves = [row for row in contents.table.rows if not row.has_rows]
    assert sum(sum(each.tensors for each in row.states) for row in leaves) == len(model.parameters)
    assert sum(row.elements for row in leaves) == sum(info.count for info in model.parameters)
    assert contents.table.omitted == 0


def test_each_row_has_its_states_and_why(contents: Contents) -> None:
    rows = {row.path: row for row in contents.table.rows}
    assert [each.state for each in rows["ctx"].states] == [ParameterState.TRAINED]
    assert [each.state for each in rows["image_encoder"].states] == [ParameterState.CUT]
    assert rows["image_encoder"].why[0].startswith("Backward never enters it: ")
    assert any("for the gradient of ctx" in sentence for sentence in rows["text_encoder"].why)
    assert not rows["image_encoder"].has_rows


def test_module_in_two_states_has_two_rows(contents: Contents) -> None:
    own = [row for row in contents.table.rows if row.depth == 1 and not row.kind]
    assert [(row.name, row.states[0].state) for row in own] == [("ctx", "T"), ("logit_scale", "C")]


def test_row_says_how_many_rows_train() -> None:
    parts = (("weight", (40, 4)), ("bias", (4,)))
    model = found(Node("Net", "Net", (), (Node("embed", "Embed", parts), Node("tail", "Embed", parts))))
    rows = ev.FrozenRowsChanged(1.0, 2, (RowsInForce(0, "0:32", 32, 40),))
    contents = contents_of(run_of(state_after(model, classified(model, ""), rows)))
    (row,) = [row for row in contents.table.rows if row.path == "embed.weight"]
    assert row.why[0].startswith("It trains 8 of 40 rows")
    assert "It trains 8 of 40 rows" in page(contents)
    assert [each.path for each in contents.table.rows if each.depth == 1] == ["embed", "tail"]


def test_blocks_that_are_alike_share_a_row() -> None:
    model = adapted_blocks(30)
    rows = module_table(state_after(model, classified(model, "adapter"))).rows
    assert [(row.name, row.modules, row.elements) for row in rows] == [
        ("Net", 1, 30 * 96),
        ("blocks", 1, 30 * 96),
        ("0 … 29", 30, 30 * 96),
        ("base", 1, 64),
        ("adapter", 1, 32),
    ]


def test_block_that_differs_has_row_of_its_own() -> None:
    model = adapted_blocks(6)
    event = classified(model, "adapter")
    flags = "".join(
        "1" if info.path.startswith("blocks.3.") else flag for info, flag in zip(model.parameters, event.trainable)
    )
    event = replace(event, trainable=flags, states=flags.replace("1", "T").replace("0", "F"))
    rows = module_table(state_after(model, event)).rows
    assert [(row.name, row.modules) for row in rows if row.depth == 2] == [("0 … 2", 3), ("3", 1), ("4 … 5", 2)]


def test_time_of_loop_is_table_after_ten_steps() -> None:
    state = state_after(numbered_layers(3), times(wait=58, forward=2, backward=6.6))
    time = contents_of(run_of(state)).time
    assert " 6.7 s in 100 steps" in time.words
    assert time.verdict.startswith("Input-bound: 87 %")
    assert time.rows[0] == ("data wait", "87 %", "5.8 s", "58.0 ms", "58.0 ms")
    assert time.modules == ()
    assert contents_of(run_of(state_after(numbered_layers(3), classified(numbered_layers(3), "")))).time is None


def test_modules_that_take_most_of_step_are_table() -> None:
    model = numbered_layers(3)
    own = (0, 0, 2_000_000, 0, 6_000_000)
    none = (0,) * len(own)
    timed = ev.ModuleTimesMeasured(2.0, 50, (8_000_000, *own[1:]), own, none, none, 4, 0.001)
    time = contents_of(run_of(state_after(model, times(forward=2, backward=6.6), timed))).time
    assert [row[2:] for row in time.modules] == [
        ("6.00 ms", "0.0 s", "6.00 ms", "75 %"),
        ("2.00 ms", "0.0 s", "2.00 ms", "25 %"),
    ]
    assert "4 sampled steps" in time.timing
    assert "1.00 ms" in time.timing


@pytest.mark.parametrize(("layers", "rows"), [(10, 12), (FEW_ROWS - 2, FEW_ROWS), (FEW_ROWS - 1, 2)])
def test_alike_layers_have_rows_while_few(layers: int, rows: int) -> None:
    model = numbered_layers(layers)
    assert len(module_table(state_after(model, classified(model, ""))).rows) == rows


def test_frozen_module_is_one_row() -> None:
    model = numbered_layers(10)
    event = classified(model, "nothing")
    (row,) = module_table(state_after(model, event)).rows
    assert (row.name, row.elements, row.states[0].tensors) == ("Net", 60, 20)


def test_large_model_counts_rows_left_out() -> None:
    model = large_model(20_000)
    # Every second layer is frozen, so that no module is like its neighbour.
    flags = "".join("01"[(index // 2) % 2] for index in range(len(model.parameters)))
    states = flags.replace("1", "T").replace("0", "F")
    table = module_table(state_after(model, ev.ParametersClassified(1.0, 2, states, flags)))
    assert len(table.rows) == MAX_ROWS or table.omitted == 0
    assert sum(sum(each.tensors for each in row.states) for row in table.rows[:1]) == 20_000


def test_deeply_nested_module_has_its_rows() -> None:
    node = Node("last", "Linear", (("weight", (1,)), ("bias", (1,))))
    for depth in range(300):
        node = Node(f"m{depth}", "Wrapper", (), (node,))
    model = found(node)
    event = classified(model, "weight")
    assert module_table(state_after(model, event)).rows[-1].name == "bias"


def test_curve_marks_non_finite_values(contents: Contents) -> None:
    assert (contents.series.loss.not_finite, contents.series.norms[0].not_finite) == ((61,), (61,))
    for curve in (contents.series.loss, *contents.series.norms):
        assert all(math.isfinite(value) for _, value in curve.points)


def test_changes_have_their_receipts(contents: Contents) -> None:
    first, second, third = contents.run.changes
    assert (first.step, first.status) == (20, "undone")
    # Of 90 and 96 MiB, one is from before training.
    assert any(result.endswith("89.0 → 95.0 MiB") for result in first.results)
    assert "activations 18.0 → 20.0 MiB" in first.results
    assert (second.step, second.status) == (40, "applied")
    assert (third.status, third.results) == ("refused", ("its gradients would be NaN",))


def test_memory_within_step_has_peak_and_holder(contents: Contents) -> None:
    step = contents.memory.step
    assert step.base == contents.memory.before_training
    assert step.peak == 50 * MIB - step.base
    assert [part.phase for part in step.parts] == [Phase.FORWARD, Phase.BACKWARD]
    assert max(total for part in step.parts for total in part.totals) == step.peak
    assert step.holders[0].bytes == 38 * MIB
    assert sum(holder.bytes for holder in step.holders) == step.peak


def test_step_below_its_beginning_has_course(tmp_path: Path) -> None:
    """What imports have left may be released later: 20 MiB are more than this step ever holds."""
    profiled = ev.StepMemoryProfiled(
        6.0, 45, (9 * MIB, 15 * MIB, 11 * MIB), 3, ((Phase.FORWARD, 0), (Phase.BACKWARD, 2)), 15 * MIB, Phase.FORWARD, 3,
        (Holding("activations", 3, 5 * MIB, 7), Holding("other", -1, 10 * MIB, 1)),
        (None,) * len(coop_model().modules), True,
    )  # fmt: skip
    at_load = ev.MemoryMeasured(
        0.1, 0, Phase.LOAD, MemoryBytes(0, 0, 0, 0, 0, 20 * MIB, 20 * MIB), 20 * MIB, True, True
    )
    memory = contents_of(recorded_run(record_run(tmp_path / "run.jsonl", at_load, profiled))).memory
    assert memory.before_training == 20 * MIB
    assert (memory.step.base, memory.step.peak) == (9 * MIB, 6 * MIB)
    assert [total for part in memory.step.parts for total in part.totals] == [0, 6 * MIB, 2 * MIB]
    assert sum(holder.bytes for holder in memory.step.holders) == memory.step.peak
    assert "the 9.00 MiB " in page(contents_of(recorded_run(tmp_path / "run.jsonl")))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (38e-6, "38 µs"),
        (0.0123, "12.3 ms"),
        (0.286358, "286 ms"),
        (0.9996, "1.0 s"),
        (4.56, "4.6 s"),
        (75.0, "1m 15s"),
        (0.0, "0.0 s"),
    ],
)
def test_short_times_are_no_zero(seconds: float, words: str) -> None:
    assert duration_text(seconds) == words


def test_parts_of_phase_add_up_to_its_total(contents: Contents) -> None:
    assert {phase.phase for phase in contents.memory.phases} >= {Phase.LOAD, Phase.FORWARD, Phase.BACKWARD}
    for phase in contents.memory.phases:
        if phase.total is not None:
            assert sum(size or 0 for _, _, size in phase.parts) == phase.total


def test_a_finding_has_the_page_of_its_rule() -> None:
    state = state_after(coop_model())
    state.findings = [finding("GT203", paths=tuple(map(str, range(30)))), finding("GT999")]
    known, unknown = contents_of(run_of(state)).findings
    rule = next(rule for rule in all_rules() if rule.id == "GT203")
    assert (known.title, known.page) == (rule.title, rule_page(rule))
    assert (len(known.paths), known.paths_omitted) == (20, 10)
    assert (unknown.title, unknown.page) == ("", "")


def test_a_recording_that_is_cut_says_so(tmp_path: Path) -> None:
    path = record_run(tmp_path / "run.jsonl")
    assert any("before the run does" in each for each in contents_of(recorded_run(path)).warnings)
    path.write_bytes(path.read_bytes()[:-40])
    assert any("middle of a line" in each for each in contents_of(recorded_run(path)).warnings)


def test_a_script_that_failed_says_so(tmp_path: Path) -> None:
    path = record_run(tmp_path / "run.jsonl", ended(1, "Traceback (most recent call last):\n  here\nValueError: no"))
    contents = contents_of(recorded_run(path))
    assert len(contents.warnings) == 1
    assert contents.warnings[0].endswith("exit code 1: ValueError: no.")
    error = contents.run.error
    assert (error.headline, str(error.traceback).splitlines()[-1]) == ("ValueError: no", "ValueError: no")


def test_a_run_without_events_has_a_report() -> None:
    contents = contents_of(run_of(RunState(), header={"script": 7, "began": "x", "rank": None}))
    assert contents.title == "a run without a name"
    assert contents.table.rows == ()
    assert contents.warnings == ("No step has been recorded.",)


def test_learning_rates_that_change_are_curves(tmp_path: Path) -> None:
    def groups(step: int, *rates: float) -> ev.GroupsRead:
        return ev.GroupsRead(1.0, step, (tuple(GroupSettings(rate, None) for rate in rates),))

    rates = (0.5, 0.75, *(1.0 + n for n in range(2 * MAX_RATES)))
    halved = (0.25, 0.75, *(each / 2 for each in rates[2:]))
    made = ev.OptimizersFound(0.6, 0, (OptimizerInfo("SGD", 2, (), 0),))
    path = record_run(tmp_path / "run.jsonl", made, groups(1, *rates), groups(10, *halved), ended())
    curve, *others = recorded_run(path).series.rates
    assert [each.name[-1] for each in others] == [str(number) for number in range(3, MAX_RATES + 1)]
    assert curve.points == ((1, 0.5), (10, 0.25))
    assert curve.name == "SGD 1, group 1"


def test_unknown_state_says_whether_frozen() -> None:
    model = numbered_layers(1)
    (row,) = module_table(state_after(model, ev.ParametersClassified(1.0, 2, "--", "00"))).rows
    assert [(each.word, each.tensors) for each in row.states] == [("frozen", 2)]
    (row,) = module_table(state_after(model)).rows
    assert [(each.word, each.tensors) for each in row.states] == [("unknown", 2)]
