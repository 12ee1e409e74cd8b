"""What all ranks do at the same step: the weights are those of a script that is written that way, on all ranks, to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.examples import nightly, only_nightly
from helpers.ranks import run_ranks
from torch import distributed

from gradtui.run.text import refusals

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"),
]

PROGRAM = Path(__file__).parent / "steered_ranks.py"
TOGGLED = [[5, "SetTrainable"], [12, "SetTrainable"]]
CHECKPOINTED = [[5, "SetCheckpointing"], [20, "SetCheckpointing"], [21, "checkpointed", 0]]


def results(
    ranks: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *cases: str
) -> dict[str, list[dict[str, Any]]]:
    """Return what each rank says of each case."""
    # As torchrun: the store belongs to the process that has started the ranks.
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    said = [
        [json.loads(line) for line in output.splitlines()]
        for output in run_ranks([[str(PROGRAM), *cases]] * ranks, tmp_path)
    ]
    return {case: [each[number] for each in said] for number, case in enumerate(cases)}


def outcome(every: list[dict[str, Any]], *, changes_weights: bool) -> list[Any]:
    """Return what the commands have come to, which is the same on all ranks, and so are the weights."""
    for run in ("plain", "written", "steered"):
        assert len({each[run] for each in every}) == 1, run
    first = every[0]
    assert first["steered"] == first["written"]
    assert (first["plain"] != first["written"]) is changes_weights
    for each in every:
        assert each["said"] == first["said"]
    return [words for words in first["said"] if words]


def check_checkpointed(every: list[dict[str, Any]]) -> None:
    """All ranks checkpoint the module, from one step on that follows the trial."""
    said = outcome(every, changes_weights=False)
    (begun,) = [words for words in said if words[1:] == ["checkpointed", 1]]
    assert [words for words in said if words != begun] == CHECKPOINTED
    assert 6 <= begun[0] < 20


def check_refused(every: list[dict[str, Any]], why: str) -> None:
    """All ranks refuse the first command before its step, for this reason, and train on as without it."""
    said = outcome(every, changes_weights=False)
    assert said[0] == [3, "no", why]
    # Nothing was changed that could be set back.
    assert all(words[1] in ("no", "refused") for words in said)


def test_two_ranks_freeze_and_change_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toggled = ("freeze find_unused", "freeze find_unused no_sync", "freeze fsdp")
    rows = ("rows ddp", "rows views no_sync")
    refused = {
        "rows fsdp": refusals.ROWS_ARE_SHARDED,
        "freeze ddp": refusals.FREEZE_UNDER_DDP,
        "freeze no_sync": refusals.FREEZE_UNDER_DDP,
        "freeze static_graph": refusals.FREEZE_UNDER_STATIC_GRAPH,
    }
    found = results(2, monkeypatch, tmp_path, *toggled, *rows, *refused, "settings", "clear")
    for case in rows:
        assert outcome(found[case], changes_weights=True) == [[5, "SetRowsTrainable"], [12, "SetRowsTrainable"]]
    for case in toggled:
        assert outcome(found[case], changes_weights=True) == TOGGLED
    for case, why in refused.items():
        check_refused(found[case], why)
    assert outcome(found["clear"], changes_weights=True) == [[5, "ZeroGradients"], [9, "ZeroGradients"]]
    assert outcome(found["settings"], changes_weights=True) == [
        [5, "SetTrainable"], [8, "Undo"], [10, "SetMode"], [12, "SetGroup"], [14, "Undo"], [15, "Undo"],
        [16, "SetBreakpoint"], [18, "held"], [18, "Resume"], [19, "SetBreakpoint"], [19, "held"], [19, "Resume"],
    ]  # fmt: skip


def test_two_ranks_return_to_a_kept_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = results(2, monkeypatch, tmp_path, "return")
    assert outcome(found["return"], changes_weights=True) == [
        [5, "KeepState"], [8, "SetTrainable"], [12, "Undo"], [12, "ReturnToState"]
    ]  # fmt: skip


def test_two_ranks_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kinds = nightly(("ddp", "static_graph", "fsdp"), ("ddp", "no_sync", "find_unused", "static_graph", "fsdp"))
    checkpointed = tuple(f"checkpoint {kind}" for kind in kinds)
    found = results(2, monkeypatch, tmp_path, *checkpointed, "checkpoint fsdp unit", "checkpoint writing")
    for case in checkpointed:
        check_checkpointed(found[case])
    check_refused(found["checkpoint fsdp unit"], refusals.GATHERS)
    check_given_up(found["checkpoint writing"])


def check_given_up(every: list[dict[str, Any]]) -> None:
    """Rank 1 cannot checkpoint the module, so none does."""
    begun, given_up, *rest = outcome(every, changes_weights=False)
    assert begun == [5, "SetCheckpointing"]
    assert given_up[1:] == ["given up", f"module.0 is not checkpointed: rank 1: {refusals.WRITES_TO_INPUT}"]
    assert rest == [[18, "no", refusals.ALREADY_SO]]


@only_nightly("as two ranks do, but four")
def test_four_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toggled, checkpointed = ("freeze fsdp", "freeze find_unused"), ("checkpoint ddp",)
    found = results(4, monkeypatch, tmp_path, *toggled, *checkpointed, "checkpoint writing")
    for case in toggled:
        assert outcome(found[case], changes_weights=True) == TOGGLED
    for case in checkpointed:
        check_checkpointed(found[case])
    check_given_up(found["checkpoint writing"])
