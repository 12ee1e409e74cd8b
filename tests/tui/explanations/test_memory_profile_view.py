"""What a step that was taken apart looks like in lines and as a curve."""

from __future__ import annotations

import dataclasses

import pytest
from helpers.fakes import coop_model, held, row_of
from helpers.lines import line_text

from gradtui.protocol.events import MemoryMeasured, StepMemoryProfiled
from gradtui.protocol.vocabulary import Holding, Phase
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.tui.explanations.memory_profile_view import closing_lines, step_lines, step_request, waiting_lines
from gradtui.tui.rendering.lines import line_width

MIB = 1 << 20
MODEL = coop_model()
BLOCK = row_of(MODEL, "text_encoder.blocks.3.mlp")


def profiled_step(**changes: object) -> StepMemoryProfiled:
    step = StepMemoryProfiled(
        1.0,
        12,
        (10 * MIB, 40 * MIB, 92 * MIB, 30 * MIB, 12 * MIB),
        500,
        ((Phase.FORWARD, 0), (Phase.BACKWARD, 2), (Phase.OTHER, 3), (Phase.OPTIMIZER, 4)),
        92 * MIB,
        Phase.BACKWARD,
        BLOCK,
        (
            Holding("activations", BLOCK, 40 * MIB, 3),
            Holding("parameters", -1, 20 * MIB, 7),
            Holding("activations", -1, 10 * MIB, 1),
            Holding("gradients", BLOCK, 0, 1),
            Holding("other", -1, 22 * MIB, 0),
        ),
        (None,) * len(MODEL.modules),
        True,
    )
    return dataclasses.replace(step, **changes)


def words(step: StepMemoryProfiled | None, width: int = 100, *, before: int = 0) -> str:
    state = RunState()
    apply(state, MODEL)
    if before:
        apply(state, MemoryMeasured(0.5, 0, Phase.LOAD, held(MIB, 0, 0, 0, other=before), None, True, True))
    if step is not None:
        apply(state, step)
    lines = step_lines(state, width)
    assert all(line_width(line) <= width for line in lines)
    return "\n".join(line_text(line).rstrip() for line in lines)


def test_the_peak_and_who_owned_it() -> None:
    said = words(profiled_step())
    assert "Step 12: 92.0 MiB at its highest, in backward at text_encoder.blocks.3.mlp" in said
    rows = [line.split() for line in said.splitlines()[2:]]
    assert rows[0][:4] == ["50.0", "MiB", "54%", "activations"]
    assert rows[0][4:] == ["4", "tensors"]
    assert rows[1] == ["40.0", "MiB", "text_encoder.blocks.3.mlp"]
    assert [row[3] for row in rows if len(row) > 3 and row[2].endswith("%")] == ["activations", "other", "parameters"]


def test_earlier_memory_is_subtracted_and_named() -> None:
    said = words(profiled_step(), before=12 * MIB)
    # 92 less 12 MiB, and of the 22 MiB that nothing explains 10 are left: an eighth of 80.
    assert "Step 12: 80.0 MiB at its highest" in said
    other = next(line.split() for line in said.splitlines() if "other" in line)
    assert other[:4] == ["10.0", "MiB", "12%", "other"]
    assert "+12.0 MiB held before training" in said
    assert step_request(profiled_step(), 60, 11, 12 * MIB).series[0].ys[:3] == (0.0, 28.0 * MIB, 80.0 * MIB)


def test_what_is_missing_is_said() -> None:
    assert "a part is missing" in words(profiled_step(whole=False))
    assert "a part is missing" not in words(profiled_step())
    assert "at text" not in words(profiled_step(peak_module=-1)).splitlines()[0]
    assert words(None) == ""
    state = RunState()
    assert "workspace" in "".join(text for line in closing_lines(state, 400) for text, _ in line)
    apply(state, MODEL)
    apply(state, profiled_step(blocks=93 * MIB))
    assert "allocator recorded every block" in "".join(text for line in closing_lines(state, 400) for text, _ in line)


def test_unexplained_is_said_in_80_columns() -> None:
    # A dialog takes 92% of them, and of these a frame, a space at both sides and the thumb.
    assert "…" not in words(profiled_step(), int(80 * 0.92) - 5)


@pytest.mark.parametrize("width", [30, 60])
def test_it_fits_a_narrow_screen(width: int) -> None:
    words(profiled_step(), width)


def test_phases_have_adjoining_parts_of_curve() -> None:
    request = step_request(profiled_step(), 60, 11)
    parts = {series.label: series.ys for series in request.series}
    assert list(parts) == ["forward", "backward", "optimizer"]
    assert parts["forward"] == (10.0 * MIB, 40.0 * MIB, 92.0 * MIB, None, None)
    assert parts["backward"] == (None, None, 92.0 * MIB, 30.0 * MIB, None)
    assert parts["optimizer"] == (None, None, None, None, 12.0 * MIB)
    assert request.series[0].xs == (0, 100, 200, 300, 400)


def test_a_step_of_other_models_is_not_kept() -> None:
    state = RunState()
    apply(state, MODEL)
    apply(state, profiled_step(highest=(1, 2)))
    assert state.step_profile is None
    apply(state, profiled_step())
    assert state.step_profile is not None
    apply(state, coop_model(blocks=1))
    assert state.step_profile is None


def test_held_run_says_how_to_get_step() -> None:
    state = RunState()
    assert "Waiting" in "".join(text for line in waiting_lines(state, 90) for text, _ in line)
    state.paused = True
    assert "n runs one step" in "".join(text for line in waiting_lines(state, 90) for text, _ in line)
