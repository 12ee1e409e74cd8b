"""The summary: every documented key, null where unknown, and nothing that JSON has no word for."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import step_memory
from helpers.fakes import GIB, MIB, Node, coop_model, coop_run, coop_states, device_sample, held, row_of, started
from helpers.optimizer_runs import linear, models, owner, run_of
from helpers.states import state_after
from helpers.summaries import summarised

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.effects import Effect, StepMemory, TimeChange
from gradtui.protocol.freezes import Changed, RowsInForce
from gradtui.protocol.json_objects import from_object, to_object
from gradtui.protocol.run_summary import SCHEMA, RunSummary
from gradtui.protocol.script_lines import ScriptLine, Uncaught
from gradtui.protocol.summary_ending import RunError
from gradtui.protocol.vocabulary import BufferInfo, GradientStats, Holding, Phase, StateReason
from gradtui.records.export.summary import FOR_ITS_END, WHILE_IT_RUNS, summarise, write
from gradtui.run.reducer import apply
from gradtui.run.reducer.results import INTERVENTIONS_KEPT
from gradtui.run.state.run_state import RunState
from gradtui.run.text.ending import end_rows
from gradtui.run.text.problem_states import state_reason

TOP = {
    "schema", "script", "arguments", "exit_code", "child_cpu_seconds", "unregistered", "unregistered_omitted", "seconds",
    "device", "ledger", "torch",
    "steps", "iterations", "micro_steps", "skipped_steps", "models", "optimizers", "phases", "memory", "step_peak", "step_time",
    "throughput", "device_load", "device_memory", "checkpointed", "living_graphs",
    "gradient_norm", "losses", "gradient_norms", "metrics", "bad_step", "spikes", "spike_count",
    "modules", "parameters", "buffers", "freezes",
    "interventions", "interventions_dropped", "forecasts", "forecast_errors", "returns", "return_count",
    "refused", "out_of_memory", "findings",
    "problems", "cost", "ranks", "report",
       "newest_step", "steps_by_optimizer", "error", "untrained", "deviations", "checkpoints", "table", "changes",
       "metrics_omitted", "job", "ending",
}  # fmt: skip
BYTES = {"parameters", "buffers", "gradients", "optimizer_state", "activations", "input", "offloaded",
         "offload_outside", "buckets", "other", "total"}  # fmt: skip
BY_OPTIMIZER = {"name", "optimizer", "is_main", "steps", "first", "last", "min", "max", "measured_steps",
                "first_step", "last_step", "min_step", "max_step"}  # fmt: skip
KEYS = {
    "models": {
        "name", "type", "current", "evaluated_only", "part_of",
        "parameters", "trainable", "measured_step", "gradient_bytes", "activation_bytes",
        "bucket_bytes", "run_under", "backward", "label", "has_trained", "in_words",
    },
    "optimizers": {"type", "parameters", "groups", "steps", "freed", "sharing", "group_settings"},
    "phase": {"seconds", "device_seconds", "device_steps", "count", "bytes_end", "bytes_end_step", "other_at_load",
              "other_first_step", "other_since", "bytes_peak", "peak_step", "peak_exact", "peak_bound", "peak_models", "exact"},
    "gradient_norm": {"since_step", "first", "last", "min", "max", "measured_steps", "not_finite_steps",
                      "first_step", "last_step", "min_step", "max_step", "of_steps", "unconfirmed_steps",
                      "micro_steps", "gradient"},
    "losses": {*BY_OPTIMIZER, "of_backwards"},
    "gradient_norms": BY_OPTIMIZER,
    "modules": {
        "path", "type", "gradient_norm", "gradient_norm_steps", "gradient", "saved_bytes", "subtree_saved_bytes",
        "forward_seconds", "own_forward_seconds", "backward_seconds", "own_backward_seconds",
    },
    "parameters": {
        "path", "names", "same_storage", "shape", "local_count",
        "dtype", "bytes", "trainable", "state", "state_reason", "gradient_norm", "gradient_norm_step", "gradient",
        "saved_bytes",
    },
    "cost": {
        "us_per_step", "device_us_per_step", "share_of_step", "steps_exempt_from_budget", "share_of_other_steps",
        "budget", "steps_within_budget", "share_within_budget", "setup_seconds",
        "dropped_events", "dropped_readings", "steps_with_estimated_phases",
    },
}  # fmt: skip


def round_trip(state: RunState, dropped: int = 0) -> Any:
    return json.loads(json.dumps(summarised(state, dropped=dropped), allow_nan=False))


def test_a_run_has_every_documented_key() -> None:
    state = state_after(*coop_run())
    changed = (Changed(True, tuple(state.tree.parameters[index].path for index in (2, 3))),)
    asked = SetTrainable(7, "text_encoder.blocks.7", True)
    apply(state, ev.CommandApplied(9.0, 120, asked, "unfroze text_encoder.blocks.7", (2, 3), changed))
    before, after = StepMemory(118, None, 1_000, 300), StepMemory(122, None, 1_200, None)
    effect = Effect(before, after, TimeChange(0.5, 0.75, 0.125), (("Adam", 2),))
    apply(state, ev.ReceiptTaken(9.1, 122, 7, "unfroze text_encoder.blocks.7: all", True, effect))
    apply(state, ev.RunEnded(9.5, 120, 0, None))
    summary = round_trip(state, dropped=3)
    assert set(summary) == TOP
    assert summary["schema"] == SCHEMA == 1
    assert summary["exit_code"] == 0
    assert set(summary["phases"]) == {phase.value for phase in Phase}
    for phase in summary["phases"].values():
        assert set(phase) == KEYS["phase"]
        assert phase["bytes_end"] is None or set(phase["bytes_end"]) == BYTES
    assert any(phase["bytes_end"] for phase in summary["phases"].values())
    for part in ("models", "optimizers", "modules", "parameters", "losses", "gradient_norms"):
        assert summary[part]
        for row in summary[part]:
            assert set(row) == KEYS[part]
    for part in ("gradient_norm", "cost"):
        assert set(summary[part]) == KEYS[part]
    assert summary["cost"]["dropped_events"] == 3
    (intervention,) = summary["interventions"]
    assert intervention["path"] == "text_encoder.blocks.7"
    assert intervention["command"] == "unfreeze"
    assert intervention["trainable"] is True
    assert intervention["parameters"] == list(changed[0].paths)
    assert intervention["trainable"] is True
    assert intervention["receipt"] == {
        "text": "unfroze text_encoder.blocks.7: all",
        "carried_out": True,
        "peak_bytes": None,
        "total_bytes": [1_000, 1_200],
        "activations_bytes": None,
        "seconds": [0.5, 0.75, 0.125],
        "joined": {"Adam": 2},
        "other_changes": 0,
    }
    assert summary["interventions_dropped"] == 0


def test_interventions_that_were_not_kept_are_counted() -> None:
    state = state_after(*coop_run(2))
    for number in range(INTERVENTIONS_KEPT + 3):
        apply(state, ev.CommandApplied(9.0, 2, SetTrainable(number, "ctx", False), "froze ctx", (0,)))
    summary = round_trip(state)
    assert (len(summary["interventions"]), summary["interventions_dropped"]) == (INTERVENTIONS_KEPT, 3)


def test_memory_of_steps_has_peak_and_spikes() -> None:
    found = {20: 300 * MIB, 40: 200 * MIB}
    summary = round_trip(step_memory.state(60, found))
    peaks = {step: step_memory.totals(step, more).peak for step, more in found.items()}
    assert summary["memory"] == {
        "peak": {
            "step": 20,
            "since_step": 20,
            "phase": "forward",
            "bytes": peaks[20],
            "exact": False,
            "bound": "at least",
        },
        "devices": [],
        "spike_count": 2,
        "spike_count_exact": True,
        "spikes": [
            {"step": step, "phase": "forward", "peak_bytes": peak, "usual_bytes": step_memory.USUAL, "steps": 1}
            for step, peak in peaks.items()
        ],
        "fullest": "",
        "before_training": step_memory.BEFORE,
        "notes": summary["memory"]["notes"],
    }
    assert summary["memory"]["notes"][-1].startswith("2 memory spikes")
    assert (summary["phases"]["forward"]["bytes_peak"], summary["phases"]["forward"]["peak_step"]) == (peaks[20], 20)
    assert summary["phases"]["data"]["peak_step"] is None


def test_empty_run_is_null_where_nothing_is_known() -> None:
    summary = round_trip(RunState())
    assert set(summary) == TOP
    for key in ("script", "exit_code", "device", "ledger", "torch"):
        assert summary[key] is None
    for key in ("first", "last", "min", "max"):
        assert summary["gradient_norm"][key] is None
    assert summary["memory"]["peak"] is None
    assert (summary["memory"]["spike_count"], summary["memory"]["spikes"], summary["memory"]["notes"]) == (0, [], [])
    for phase in summary["phases"].values():
        assert (phase["bytes_end"], phase["bytes_peak"], phase["exact"], phase["peak_exact"]) == (None,) * 4
    assert (summary["cost"]["us_per_step"], summary["cost"]["share_of_step"]) == (None, None)


def test_every_norm_states_step_it_was_read_at() -> None:
    model = coop_model(blocks=1)
    count = len(model.parameters)
    steps = (7, 8, None, *[8] * (count - 3))
    state = state_after(
        started(),
        model,
        ev.GradientsMeasured(1.0, 2, 3.0, 1.0, None),
        ev.GradientsMeasured(2.0, 8, 2.0, 1.0, (1.0, 1.0, None, *[1.0] * (count - 3)), norm_steps=steps),
        ev.GradientsMeasured(3.0, 9, 5.0, 1.0, None, as_applied=False),
        ev.Progress(3.5, 11, 11, 11, 0, (11,), (), 0.0, 1, 1),
    )
    summary = round_trip(state)
    norm = summary["gradient_norm"]
    assert [norm[f"{name}_step"] for name in ("first", "last", "min", "max")] == [2, 9, 8, 9]
    assert (norm["measured_steps"], norm["of_steps"], norm["unconfirmed_steps"]) == (3, 11, 1)
    assert [row["gradient_norm_step"] for row in summary["parameters"][:4]] == [7, 8, None, 8]
    assert summary["modules"][0]["gradient_norm_steps"] == [7, 8]
    apply(state, ev.GradientsMeasured(4.0, 10, 5.0, 1.0, (None, *[1.0] * (count - 1))))
    summary = round_trip(state)
    assert [row["gradient_norm_step"] for row in summary["parameters"][:2]] == [None, 10]
    assert summary["modules"][0]["gradient_norm_steps"] == [10, 10]


def test_non_finite_or_unmeasured_is_null() -> None:
    model = coop_model(blocks=1)
    count = len(model.parameters)
    norms = [math.nan, math.inf, None] + [1.0] * (count - 3)
    state = state_after(
        started(),
        model,
        ev.GradientsMeasured(1.0, 1, math.nan, math.nan, tuple(norms)),
        ev.GradientsMeasured(2.0, 2, math.inf, math.inf, None),
        ev.MemoryMeasured(2.0, 2, Phase.FORWARD, held(1, 1, 1, None), None, False, False),
    )
    summary = round_trip(state)
    assert [row["gradient_norm"] for row in summary["parameters"][:4]] == [None, None, None, 1.0]
    assert {row["trainable"] for row in summary["parameters"]} == {None}
    assert {row["state"] for row in summary["parameters"]} == {None}
    assert {row["saved_bytes"] for row in summary["parameters"]} == {None}
    assert summary["models"][0]["trainable"] is None
    assert summary["gradient_norm"]["last"] is None
    assert summary["gradient_norm"]["not_finite_steps"] == 2
    forward = summary["phases"]["forward"]
    assert forward["bytes_end"]["activations"] is None
    assert forward["exact"] is False
    assert forward["peak_exact"] is None


def test_damaged_recording_still_makes_valid_json(tmp_path: Path) -> None:
    summary = summarise(RunState(), dropped=0)
    load = replace(summary.phases["load"], seconds=math.nan)
    write(replace(summary, seconds=math.inf, phases={"load": load}, steps=3), tmp_path / "summary.json")
    found = json.loads((tmp_path / "summary.json").read_bytes())
    assert (found["seconds"], found["phases"]["load"]["seconds"], found["steps"]) == (None, None, 3)


def test_trainable_counts_elements_of_what_requires_a_gradient() -> None:
    model = coop_model(blocks=1)
    letters, flags = coop_states(model)
    summary = round_trip(state_after(model, ev.ParametersClassified(1.0, 1, letters, flags)))
    ctx = next(parameter for parameter in model.parameters if parameter.path == "ctx")
    assert summary["models"][0]["trainable"] == ctx.count
    assert summary["models"][0]["parameters"] == sum(parameter.count for parameter in model.parameters)
    assert {row["path"] for row in summary["parameters"] if row["trainable"]} == {"ctx"}


def test_a_parameter_has_the_reason_of_its_state() -> None:
    model = coop_model(blocks=1)
    letters, flags = coop_states(model)
    index = next(index for index, info in enumerate(model.parameters) if info.path == "ctx")
    letters = letters[:index] + "U" + letters[index + 1 :]
    reasons = "-" * index + StateReason.CLEARED.value + "-" * (len(letters) - index - 1)
    state = state_after(model, ev.ParametersClassified(1.0, 1, letters, flags, reasons))
    rows = round_trip(state)["parameters"]
    assert [row["path"] for row in rows if row["state_reason"]] == ["ctx"]
    assert rows[index]["state_reason"] == state_reason(state.tree, index)


def test_tied_parameter_is_one_row_with_names() -> None:
    rows = round_trip(state_after(coop_model()))["parameters"]
    (tied,) = [row for row in rows if len(row["names"]) > 1]
    assert tied["names"] == ["text_encoder.token_embedding.weight", "text_encoder.head.weight"]


def test_summary_is_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("old")
    write(summarise(state_after(*coop_run(3)), dropped=0), path)
    assert json.loads(path.read_text())["steps"] == 3
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_summary_that_cannot_be_written_leaves_old_one(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("old")
    with pytest.raises(TypeError, match="JSON"):
        write(replace(summarise(RunState(), dropped=0), schema=object()), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        write({}, tmp_path / "missing" / "summary.json")


def test_holders_of_peak_of_profiled_step() -> None:
    state = state_after(*coop_run(3))
    assert round_trip(state)["step_peak"] is None
    modules = state.tree.modules
    index = next(index for index, module in enumerate(modules) if module.path.endswith("blocks.0"))
    holdings = (Holding("activations", index, 70, 2), Holding("other", -1, 30, 0))
    apply(
        state,
        ev.StepMemoryProfiled(
            2.0, 3, (10, 100), 2, ((Phase.FORWARD, 0),), 100, Phase.FORWARD, index, holdings,
            (None,) * len(modules), True,
        ),
    )  # fmt: skip
    path = modules[index].path
    assert round_trip(state)["step_peak"] == {
        "step": 3, "bytes": 100, "phase": "forward", "module": path, "place": path, "whole": True,
        "holdings": [
            {"kind": "activations", "module": path, "place": path, "bytes": 70, "tensors": 2},
            {"kind": "other", "module": None, "place": "", "bytes": 30, "tensors": 0},
        ],
    }  # fmt: skip


def test_where_the_memory_of_a_device_went() -> None:
    assert round_trip(state_after(*coop_run()))["device_memory"] is None
    memory = round_trip(state_after(*coop_run(), device_sample(step=40)))["device_memory"]
    assert (memory["scope"], memory["step"], memory["total"]) == ("process", 40, 14 * GIB)
    parts = [memory[name] for name in ("context", "cached", "rounding", "requested")]
    assert sum(parts) == memory["total"]
    assert (memory["rounding"], memory["outside"], memory["other_processes"]) == (100 * MIB, None, GIB)
    assert (memory["allocated"], memory["reserved"]) == (9 * GIB + 100 * MIB, 12 * GIB + 300 * MIB)
    assert (memory["device_used"], memory["device_total"]) == (15 * GIB, 80 * GIB)
    (only,) = memory["devices"]
    assert only == {
        "index": 0,
        "name": "NVIDIA H100",
        **{name: memory[name] for name in only.keys() - {"index", "name"}},
    }


def test_where_process_is_hidden_memory_is_whole_devices() -> None:
    memory = round_trip(state_after(device_sample(process=None)))["device_memory"]
    assert (memory["scope"], memory["total"], memory["context"]) == ("device", 15 * GIB, None)
    assert memory["outside"] == 15 * GIB - memory["reserved"]


def test_gradient_figures_come_with_their_step() -> None:
    state = state_after(*coop_run(3))
    apply(state, ev.GradientFiguresMeasured(1.0, 7, (GradientStats(1, math.nan, 0.5, 0.25, 0.0, 2, 3.0, 1e-3, False),)))
    first, second = round_trip(state)["parameters"][:2]
    assert first["gradient"] is None
    assert second["gradient"] == {
        "step": 7, "max_abs": None, "mean": 0.5, "std": 0.25, "zero_fraction": 0.0, "not_finite": 2,
        "weight_norm": 3.0, "update_ratio": 1e-3, "ratio_is_exact": False,
    }  # fmt: skip


def test_what_is_checkpointed_is_told_by_module() -> None:
    state = state_after(*coop_run(3))
    modules = len(state.tree.modules)
    again: tuple[int | None, ...] = (0, 5, None, *[0] * (modules - 3))
    inputs = (0, 0, 0, 7, *[0] * (modules - 4))
    rows = (0,) * modules
    apply(state, ev.SavedBytesMeasured(1.0, 3, rows, 0, (), again, inputs))
    paths = [module.path for module in state.tree.modules]
    assert round_trip(state, dropped=0)["checkpointed"] == [
        {"module": paths[1], "recomputed_bytes": 5, "kept_bytes": 0},
        {"module": paths[2], "recomputed_bytes": None, "kept_bytes": 0},
        {"module": paths[3], "recomputed_bytes": 0, "kept_bytes": 7},
    ]


def test_the_first_bad_step() -> None:
    state = RunState()
    assert summarised(state)["bad_step"] is None
    event = ev.NonFiniteFound(
        3.5, 17, 1, "Inf", Phase.FORWARD, 16, module="encoder.ln", until="encoder.ln", batch_is_finite=True
    )
    apply(state, event)
    apply(state, ev.NonFiniteFound(4.0, 30, 2, "NaN", None, 20, parameter="head.weight", others=2, exact=False))
    assert json.loads(json.dumps(summarised(state)["bad_step"], allow_nan=False)) == {
        "step": 17,
        "seconds": 3.5,
        "value": "Inf",
        "phase": "forward",
        "earliest_step": 17,
        "last_finite_step": 16,
        "module": "encoder.ln",
        "until": "encoder.ln",
        "is_input": False,
        "parameter": None,
        "others": 0,
        "operation": None,
        "cause": None,
        "dtype": "",
        "batch": None,
        "other_batches": [],
        "outcome": None,
        "exact": True,
        "in_words": "first Inf: forward of step 17, in encoder.ln (its output); the batch was finite (last finite step 16)",
    }


def test_modules_have_saved_bytes_of_subtree() -> None:
    rows = {row["path"]: row for row in round_trip(state_after(*coop_run(3)))["modules"]}
    # In each block of the fake run six modules save half a MiB each: two norms, three linear layers and the GELU.
    assert (rows["text_encoder.blocks.0.mlp.1"]["type"], rows["text_encoder.blocks.0.mlp.1"]["saved_bytes"]) == (
        "GELU",
        MIB // 2,
    )
    assert (rows["text_encoder.blocks.0"]["saved_bytes"], rows["text_encoder.blocks.0"]["subtree_saved_bytes"]) == (
        0,
        3 * MIB,
    )
    # Eight blocks and the last norm.
    assert rows[""]["subtree_saved_bytes"] == rows["text_encoder"]["subtree_saved_bytes"] == 8 * 3 * MIB + MIB // 2
    assert rows["image_encoder"]["subtree_saved_bytes"] == 0
    before = round_trip(state_after(*coop_run(1)))["modules"][0]
    assert (before["saved_bytes"], before["subtree_saved_bytes"]) == (None, None)


def test_unreached_graphs_are_told_while_alive() -> None:
    state = state_after(*coop_run(3))
    assert round_trip(state)["living_graphs"] is None
    apply(state, ev.GraphsAlive(9.0, 3, 12, True, 2, 5 * MIB))
    assert round_trip(state)["living_graphs"] == {
        "step": 3, "forwards": 12, "at_least": True, "since_step": 2, "bytes": 5 * MIB,
    }  # fmt: skip
    apply(state, ev.GraphsAlive(9.5, 4, 0, False, 0, 0))
    assert round_trip(state)["living_graphs"] is None


def test_buffers_are_listed() -> None:
    found = coop_model()
    info = BufferInfo("token_prefix", (4, 256), "float32", 1024, 4096, 0, persistent=False)
    state = state_after(*coop_run(1), replace(found, buffers=(info,)))
    assert round_trip(state)["buffers"] == [
        {"path": "token_prefix", "shape": [4, 256], "dtype": "float32", "bytes": 4096, "persistent": False}
    ]
    assert round_trip(state_after(*coop_run(1)))["buffers"] == []


def test_parts_of_gradtui_that_failed_are_listed() -> None:
    state = RunState()
    assert summarised(state)["problems"] == {}
    for error in ("first", "second"):
        apply(state, ev.ProbeFailed(1.0, 2, part="gradient norms", error=error, disabled=False))
    assert summarised(state)["problems"] == {"gradient norms": {"error": "second", "failures": 2}}


def test_host_and_device_times_of_phases_and_overhead() -> None:
    times = (ev.PhaseTime(Phase.FORWARD, 2.0, 4), ev.PhaseTime(Phase.DATA, 1.0, 4))
    progress = ev.Progress(1.0, 4, 4, 4, 0, (4,), times, 0.0, 1, 1)
    further = ev.Progress(2.0, 8, 4, 4, 0, (4,), times, 0.01, 1, 1, own_device_seconds=0.008)
    measured = [ev.DeviceTimesMeasured(1.0, step, ((Phase.FORWARD, 0.25),), 0.002) for step in (1, 2, 3)]
    told = round_trip(state_after(progress, *measured, further))
    forward, data = told["phases"]["forward"], told["phases"]["data"]
    assert (forward["seconds"], forward["device_seconds"], forward["device_steps"]) == (4.0, 0.75, 3)
    assert (data["seconds"], data["device_seconds"], data["device_steps"]) == (2.0, None, 0)
    assert told["cost"]["device_us_per_step"] == pytest.approx(2_000)
    assert told["cost"]["us_per_step"] == pytest.approx(2_500)


def test_extremes_of_each_optimizer_survive_long_run() -> None:
    count = 6000
    losses = {step: 1 + math.sin(step) + 1 / step for step in range(1, count + 1)}
    listed = models(Node("Net", "Net", (), (linear("l1"),)))
    events = run_of(listed, [owner(listed, "Net")])
    figures = [
        ev.StepsMeasured(1.0, step, (ev.StepFigures(step, 0, loss, total=2 * loss),)) for step, loss in losses.items()
    ]
    bad = ev.StepsMeasured(1.0, count + 1, (ev.StepFigures(count + 1, 0, math.nan),))
    summary = round_trip(state_after(*events, *figures, bad))
    (loss,), (norm,) = summary["losses"], summary["gradient_norms"]
    low, high = min(losses, key=losses.__getitem__), max(losses, key=losses.__getitem__)
    assert (loss["min"], loss["min_step"], loss["max"], loss["max_step"]) == (losses[low], low, losses[high], high)
    assert (loss["first"], loss["last"], loss["last_step"], loss["measured_steps"]) == (
        losses[1],
        None,
        count + 1,
        count + 1,
    )
    assert (norm["min"], norm["max"], norm["measured_steps"]) == (2 * losses[low], 2 * losses[high], count)
    assert (loss["name"], loss["optimizer"], loss["is_main"], loss["of_backwards"]) == ("Net", 0, True, None)


def test_a_summary_is_read_as_it_was_written() -> None:
    state = state_after(*coop_run())
    apply(state, ev.CommandApplied(9.0, 120, SetTrainable(7, "ctx", True), "unfroze ctx", (0,)))
    apply(state, device_sample())
    written = round_trip(state)
    read = from_object(RunSummary, written)
    assert read.device_memory is not None
    assert read.interventions[0].fields == {"path": "ctx"}
    assert json.loads(json.dumps(to_object(read))) == written


def test_batches_of_nan_and_of_spike() -> None:
    state = RunState()
    batch = ev.NamedBatch(3, 10, 2, samples=(4, 7), sample_count=2, data_set="Subset")
    found = ev.NonFiniteFound(
        1.0, 13, 1, "Inf", Phase.FORWARD, 12, batches=(batch,), cause=ev.NonFiniteCause.LOG_OF_ZERO, dtype="float16"
    )
    apply(state, found)
    apply(state, ev.NonFiniteSettled(1.0, 13, 1, ev.NonFiniteOutcome(13, "scaler", True)))
    apply(state, ev.SpikeFound(2.0, 14, 1, "loss", 50.0, 0.5, 2.0, (batch, ev.NamedBatch(1, is_stream=True))))
    apply(state, ev.SpikeSettled(2.0, 16, 1, 16))
    summary = to_object(summarise(state, dropped=0))
    bad, (spike,) = summary["bad_step"], summary["spikes"]
    named = {
        "epoch": 2, "number": 3, "count": 10, "before": 0, "samples": [4, 7], "sample_count": 2, "data_set": "Subset",
        "is_stream": False,
    }  # fmt: skip
    assert (bad["cause"], bad["dtype"], bad["batch"], bad["other_batches"]) == ("log of 0", "float16", named, [])
    assert bad["outcome"] == {
        "step": 13, "left_out_by": "scaler", "weights_are_finite": True, "parameter": None, "others": 0,
    }  # fmt: skip
    assert (spike["metric"], spike["value"], spike["back_at"], spike["batch"]) == ("loss", 50.0, 16, named)
    assert [each["is_stream"] for each in spike["other_batches"]] == [True]
    assert summary["spike_count"] == 1


def test_frozen_rows_have_their_path_and_their_number() -> None:
    model = coop_model()
    index = ~row_of(model, "ctx")
    state = state_after(*coop_run(5), ev.FrozenRowsChanged(2.0, 6, (RowsInForce(index, "0:3", 3, 4),)))
    assert summarised(state)["freezes"]["rows"] == [{"path": "ctx", "rows": "0:3", "frozen": 3, "count": 4}]


def test_failed_run_has_its_error_and_closing_lines() -> None:
    raised = Uncaught("ValueError", ("no data",), line=ScriptLine("train.py", 7))
    state = state_after(*coop_run(5), ev.RunEnded(9.0, 5, 1, "Traceback\nValueError: no data", None, raised))
    summary = summarise(state, dropped=0)
    assert summary.error == RunError("ValueError: no data", "Traceback\nValueError: no data", "train.py", 7)
    assert summary.ending == tuple(end_rows(state))
    assert [(row.label, row.text) for row in summary.ending[:2]] == [
        ("error", "ValueError: no data"),
        ("at", "train.py:7"),
    ]
    assert summarise(state_after(*coop_run(5), ev.RunEnded(9.0, 5, 0, None)), dropped=0).error is None


def test_earlier_version_lacks_later_fields() -> None:
    written = round_trip(state_after(*coop_run(5), ev.RunEnded(9.0, 5, 0, None)))
    for name in ("newest_step", "error", "table", "changes", "job", "ending"):
        del written[name]
    del written["memory"]["notes"], written["models"][0]["label"]
    read = from_object(RunSummary, written)
    assert (read.steps, read.newest_step, read.table, read.changes, read.ending) == (5, 0, None, (), ())
    assert (read.memory.notes, read.models[0].label) == ((), "")


def test_omitted_parts_change_nothing_else() -> None:
    state = state_after(*coop_run(5), ev.RunEnded(9.0, 5, 0, None))
    whole = summarise(state, dropped=0)
    assert whole.table is not None
    assert summarise(state, dropped=0, without=WHILE_IT_RUNS) == replace(whole, table=None)
    left_out = replace(whole, table=None, modules=(), parameters=(), report=())
    assert summarise(state, dropped=0, without=FOR_ITS_END) == left_out
