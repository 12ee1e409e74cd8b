"""A failed allocation in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradtui.protocol.events import (
    GradientsMeasured,
    MemoryMeasured,
    OutOfMemory,
    StepFigures,
    StepLosses,
    StepMemoryMeasured,
    StepsMeasured,
    StepTotals,
)
from gradtui.protocol.vocabulary import HeldStorage, MemoryBytes, Phase
from gradtui.run.text import oom_headline, oom_report, size_text

GIB = 1 << 30
BOX = OutOfMemory(
    12.5, 40, 1, "cuda:0", "", 3 * GIB // 2, Phase.FORWARD, "encoder.layers.3",
    (("parameters", GIB), ("buffers", 0), ("gradients", GIB), ("optimizer_state", 2 * GIB), ("activations", 4 * GIB)),
    9 * GIB, (HeldStorage("saved by AddmmBackward0", "activations", GIB, (8, 4), "float32", 3),),
    True, "/state/box.txt", None,
)  # fmt: skip


def test_one_line_says_what_where_who_and_file() -> None:
    assert oom_headline(BOX) == (
        "CUDA out of memory in encoder.layers.3 (forward): 4.0 GiB activations, 2.0 GiB optimizer state, 1.0 GiB parameters, "
        "1.0 GiB gradients; 1.5 GiB more were requested; written to /state/box.txt"
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"module": None}, "CUDA out of memory in forward: "),
        ({"module": ""}, "CUDA out of memory in the model (forward): "),
        ({"file": None, "trouble": "No space left on device"}, "; not written down: No space left on device"),
        ({"total": 20 * GIB}, ": 12.0 GiB other, 4.0 GiB activations, "),
        ({"categories": (), "number": 64, "file": None}, "failure 64 of this run, without a full report"),
    ],
)
def test_what_is_unknown_is_left_out(change: dict[str, object], text: str) -> None:
    assert text in oom_headline(replace(BOX, **change))  # type: ignore[arg-type]


def test_file_names_bytes_owners_and_last_steps() -> None:
    held = MemoryBytes(**dict.fromkeys(MemoryBytes.__dataclass_fields__, 0) | {"parameters": GIB, "total": 2 * GIB})
    before = [
        MemoryMeasured(1.0, 0, Phase.LOAD, held, GIB, True, True),
        MemoryMeasured(2.0, 39, Phase.BACKWARD, held, 3 * GIB, False, True),
        GradientsMeasured(2.0, 39, 0.5, None, None),
    ]
    lines = oom_report(BOX, before).splitlines()
    assert f"requested  {3 * GIB // 2:,} B (1.5 GiB)" in lines
    assert f"  {'activations':<16} {4 * GIB:,} B (4.0 GiB)" in lines
    assert f"  {'other':<16} {GIB:,} B (1.0 GiB)" in lines
    (storage,) = [line for line in lines if "AddmmBackward0" in line]
    assert storage.split() == [
        f"{3 * GIB:,}", "3", f"{GIB:,}", "float32[8×4]", "saved", "by", "AddmmBackward0",
    ]  # fmt: skip
    steps = lines[lines.index("  before the first step") :]
    assert steps == [
        "  before the first step",
        "    load       2.0 GiB, peak 1.0 GiB: parameters 1.0 GiB",
        "  step 39",
        "    backward   2.0 GiB, peak ≥ 3.0 GiB: parameters 1.0 GiB",
        "    loss –, gradient norm 0.5",
    ]


def test_several_events_of_step_are_one_line() -> None:
    """The losses of steps that were handled together are apart from their norms."""
    losses = StepLosses(0, (37, 38, 39), (0.7, 0.6, 0.5))
    figures = tuple(StepFigures(step, 0, None, total=step / 10) for step in (37, 39))
    totals = StepMemoryMeasured(2.0, 39, (StepTotals(39, GIB, 2 * GIB, None, 2 * GIB),))
    before = [StepsMeasured(2.0, 39, figures, (losses,)), totals, GradientsMeasured(2.0, 40, 4.0, 0.4, None)]
    lines = oom_report(BOX, before).splitlines()
    assert lines[lines.index("  step 37") :] == [
        "  step 37",
        "    loss 0.7, gradient norm 3.7",
        "  step 38",
        "    loss 0.6, gradient norm –",
        "  step 39",
        "    after forward 1.0 GiB, backward 2.0 GiB",
        "    loss 0.5, gradient norm 3.9",
        "  step 40",
        "    loss 0.4, gradient norm 4",
    ]


def test_incompletely_found_bytes_are_lower_bound() -> None:
    assert "a lower bound: the search ran out of time" in oom_report(replace(BOX, whole=False), ())


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 29, "1.5 GiB"), (1 << 60, "1.0 EiB"), (-2048, "-2.0 KiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size_text(count) == text
