"""Unedited scripts of the frameworks people train with: nothing differs, steps are counted as they count, bars are readable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from transparency.three_ways import Left

from gradtui.transport.log_tail import LogTail

from .cases import CASES, TIMES, Runs, run
from .seen import STRAY, on_a_terminal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),  # a script runs three times before its first test, and one compiles C++
    pytest.mark.skipif(sys.version_info < (3, 11), reason="these packages are in the test extra from Python 3.11 on"),
]

MODELS = {
    "transformers": [("model", "GPT2LMHeadModel")],
    "accelerate": [("model", "Sequential")],
    "accelerate in bf16": [("model", "Sequential")],
    "Lightning": [("module", "Regressor")],
    "Lightning by hand": [("module", "Pair")],
    "LoRA": [("model", "PeftModelForCausalLM")],
    "amp": [("model", "Sequential")],
}


HALVES = [pytest.param(name, marks=pytest.mark.xdist_group(f"ecosystems {at % 2}")) for at, name in enumerate(CASES)]
"""Two workers share the cases: each that gets one starts a fork server for it."""


@pytest.fixture(scope="module", params=HALVES)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Runs, Path]:
    directory = tmp_path_factory.mktemp("runs")
    return request.param, run(CASES[request.param], directory), directory


def test_nothing_differs(ran: tuple[str, Runs, Path]) -> None:
    name, runs, _ = ran
    assert runs.python.exit_code == 0, runs.python.output.decode()
    for way, found in {"plain": runs.plain, "screen": runs.screen}.items():
        if found is None:
            continue
        assert found.exit_code == 0, way
        # A bar by Rich is drawn by its clock: what else is on the screen is compared with a terminal below.
        if not (way == "screen" and CASES[name].on_screen):
            assert output_without_times(found, way) == output_without_times(runs.python, way), way
        assert found.files.keys() == runs.python.files.keys(), way
        differ = [path for path in found.files if masked(path, found) != masked(path, runs.python)]
        assert differ == [], way


def output_without_times(left: Left, way: str) -> str:
    """The output without times; without line ends where gradtui may have ended the line of a bar before a line of its own."""
    text = TIMES.sub(b"", left.output).decode()
    return text.replace("\n", "") if way == "plain" else text


def masked(path: str, left: Left) -> bytes:
    """A file without the times that the Trainer writes down."""
    data = left.files[path]
    return TIMES.sub(b"", data) if path.endswith("trainer_state.json") else data


def test_steps_are_counted_as_the_framework_counts_them(ran: tuple[str, Runs, Path]) -> None:
    _, runs, _ = ran
    assert runs.counts["steps"] >= 6
    for way, summary in runs.summaries.items():
        counted = {
            "steps": summary["steps"], "micro_steps": summary["micro_steps"], "skipped": summary["skipped_steps"],
        }  # fmt: skip
        assert counted == runs.counts, way


def test_nothing_is_found(ran: tuple[str, Runs, Path]) -> None:
    _, runs, _ = ran
    for way, summary in runs.summaries.items():
        assert [finding["message"] for finding in summary["findings"] if finding["level"] != "note"] == [], way


def test_models_are_found_once_with_names_of_script(ran: tuple[str, Runs, Path]) -> None:
    name, runs, _ = ran
    for summary in runs.summaries.values():
        found = [(model["name"], model["type"]) for model in summary["models"]]
        if name == "compile":
            # That script makes many models one after the other, most of them in a function.
            assert {kind for _, kind in found} == {"Net"}
        else:
            assert found == MODELS[name]
        paths = [parameter["path"] for parameter in summary["parameters"]]
        assert len(paths) == len(set(paths))
        assert not any("_orig_mod" in path for path in paths)


def test_every_parameter_has_state_of_its_place(ran: tuple[str, Runs, Path]) -> None:
    name, runs, _ = ran
    if name == "compile":
        pytest.skip("many models one after the other")
    for way, summary in runs.summaries.items():
        states = {parameter["path"]: parameter["state"] for parameter in summary["parameters"]}
        if name == "Lightning by hand":
            # Each part is switched off, which is not "moved while frozen", while the other one has its turn.
            assert set(states.values()) <= set("TZFC"), way
            continue
        expected = {path: state_within_lora(path) if name == "LoRA" else "T" for path in states}
        assert states == expected, way


def state_within_lora(path: str) -> str:
    """The adapters train. Backward goes no further down than the first of them: what is before has nothing to do with it."""
    if ".lora_" in path:
        return "T"
    first = path.startswith("base_model.model.model.layers.0.")
    before = first and any(part in path for part in (".input_layernorm.", ".q_proj.", ".k_proj.", ".v_proj."))
    return "C" if before or ".embed_tokens." in path else "F"


def test_the_output_panel_shows_what_a_terminal_would(ran: tuple[str, Runs, Path]) -> None:
    _, runs, directory = ran
    if runs.screen is None:
        pytest.skip("runs without the screen")
    tail = LogTail(directory / "screen.log")
    tail.poll()
    shown = [line.rstrip() for line in tail.lines if line.strip()]
    assert shown == on_a_terminal(runs.screen.output)
    assert not any(STRAY.search(line) for line in shown)
