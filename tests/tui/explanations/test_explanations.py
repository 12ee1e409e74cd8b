from __future__ import annotations

import dataclasses

import pytest
from helpers.events import gradient_stats
from helpers.fakes import coop_model, coop_states, row_of
from helpers.lines import line_text
from helpers.states import coop_after

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.vocabulary import (
    STATE_NAMES,
    GroupSettings,
    OptimizerInfo,
    ParameterState,
    Phase,
)
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.text.explanation.states import STATE_MEANINGS as MEANINGS
from gradtui.tui.explanations.explanations import explain
from gradtui.tui.rendering.lines import detail_lines, line_width

MODEL = coop_model()


def words(state: RunState, path: str) -> str:
    lines = detail_lines(explain(state, row_of(MODEL, path)), 400)
    return "\n".join(line_text(line) for line in lines)


def test_every_state_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ParameterState)


@pytest.mark.parametrize("letter", list(ParameterState))
def test_a_parameter_is_explained_by_its_state(letter: ParameterState) -> None:
    count = len(MODEL.parameters)
    state = coop_after(ev.ParametersClassified(9.0, 9, letter.value * count, "1" * count))
    shown = words(state, "ctx")
    shown_as = "–" if letter is ParameterState.UNKNOWN else letter.value
    assert f"{shown_as} {STATE_NAMES[letter]}" in shown
    assert MEANINGS[letter] in shown


def test_a_parameter_comes_with_its_numbers() -> None:
    shown = words(coop_after(), "text_encoder.text_projection")
    path = "text_encoder.text_projection"
    for part in ("256×256", "float32", "65,536 elements", "256 KiB", path, "text_encoder (TextEncoder)"):
        assert part in shown


def test_tied_names_are_all_named() -> None:
    shown = words(coop_after(), "text_encoder.token_embedding.weight")
    assert "text_encoder.token_embedding.weight, text_encoder.head.weight" in shown
    assert "2 names" in shown


def test_owning_optimizer_is_named_and_orphan_said() -> None:
    assert "In AdamW." in words(coop_after(), "ctx")
    assert "In no optimizer" in words(coop_after(), "logit_scale")
    states, _ = coop_states(MODEL)
    frozen = coop_after(ev.ParametersClassified(9.0, 9, states, "0" * len(states)))
    assert "In AdamW, which keeps the state it has for it." in words(frozen, "ctx")
    assert "None has been seen yet" in words(_only_model(), "ctx")


def _only_model() -> RunState:
    state = RunState()
    apply(state, MODEL)
    return state


def test_before_anything_is_measured_nothing_is_made_up() -> None:
    shown = words(_only_model(), "ctx")
    assert "not been measured" in shown
    assert "No backward pass has been seen" in shown
    assert "which train is not known yet" in words(_only_model(), "")


def test_the_last_norm_is_told_with_its_step() -> None:
    state = coop_after(steps=10)
    norm = state.tree.norms[~row_of(MODEL, "ctx")] if state.tree.norms else None
    assert norm is not None
    assert f"L2 norm {norm:.3f}" + " at step 10" in words(state, "ctx")
    assert "No gradient in the last measured step" in words(state, "logit_scale")
    apply(state, ev.GradientsMeasured(9.0, 11, norm / 2, None, None))
    assert f"{norm / 2:.3f}" not in words(state, "ctx"), "a whole of another step"


def test_unapplied_gradient_is_not_called_missing() -> None:
    """Norms are those of the parameters that an optimizer has, so nothing is known about the gradient of another one."""
    letters, flags = coop_states(MODEL)
    index = ~row_of(MODEL, "logit_scale")
    orphan = ParameterState.ORPHAN.value
    states = letters[:index] + orphan + letters[index + 1 :]
    state = coop_after(ev.ParametersClassified(9.0, 9, states, flags[:index] + "1" + flags[index + 1 :]))
    shown = words(state, "logit_scale")
    assert "No gradient in the last measured step" not in shown
    assert "Not measured: a norm is read of what an optimizer has." in shown


def test_done_and_pending_are_both_said() -> None:
    ctx = ~row_of(MODEL, "ctx")
    state = coop_after(ev.CommandApplied(2.0, 8, SetTrainable(1, "ctx", False), "froze ctx", (ctx,)))
    assert "At step 8: froze ctx" in words(state, "ctx")
    assert "At step 8: froze ctx" in words(state, "")
    for other in ("logit_scale", "text_encoder"):
        assert "Never" in words(state, other)
    state.note_submitted(SetTrainable(2, "ctx", True))
    assert "will be unfrozen at the next step boundary" in words(state, "ctx")
    assert "1 tensor on the way" in words(state, "")


def test_module_sums_its_subtree_and_counts_its_states() -> None:
    shown = words(coop_after(), "")
    elements = sum(info.count for info in MODEL.parameters)
    assert f"{len(MODEL.parameters)} tensors, {elements:,} elements (1,024 trainable)" in shown
    assert "T 1 trains" in shown
    flow = sum(1 for info in MODEL.parameters if info.path.startswith("text_encoder."))
    assert f"F {flow} passes" in shown


def test_kept_bytes_have_share_and_step() -> None:
    state = coop_after()
    assert state.tree.saved is not None
    shown = words(state, "text_encoder")
    assert (
        f"{state.tree.saved.total / 2**20:.1f} MiB for backward, 100% of all; 0 B by its own operations (step 2)"
        in shown
    )
    share = 512 * 1024 / state.tree.saved.total
    assert f"512 KiB for backward, {share:.0%} of all (step 2)" in words(state, "text_encoder.blocks.0.mlp.0.weight")
    assert "Nothing for backward" in words(state, "image_encoder")


@pytest.mark.parametrize("width", [30, 60, 90])
def test_lines_keep_to_the_width(width: int) -> None:
    state = coop_after()
    for path in ("ctx", "text_encoder.token_embedding.weight", "text_encoder", ""):
        assert all(line_width(line) <= width for line in detail_lines(explain(state, row_of(MODEL, path)), width))


def test_script_without_optimizer_updates_its_parameters_itself() -> None:
    state = _only_model()
    state.step = 3
    assert "the script updates it by itself" in words(state, "ctx")


def test_how_high_memory_was_while_a_module_ran() -> None:
    state = coop_after()
    block = row_of(MODEL, "text_encoder.blocks.3")
    assert "were held in all" not in words(state, "text_encoder.blocks.3")
    highest: list[int | None] = [None] * len(MODEL.modules)
    # Without the MiB from before training.
    highest[block], highest[0] = 4 << 20, 6 << 20
    phases = ((Phase.FORWARD, 0),)
    apply(
        state,
        ev.StepMemoryProfiled(9.0, 9, (1, 6 << 20), 2, phases, 6 << 20, Phase.FORWARD, 0, (), tuple(highest), True),
    )
    assert "3.00 MiB were held in all while it ran, forward or backward (step 9)" in words(
        state, "text_encoder.blocks.3"
    )
    assert "the highest of the whole step" in words(state, "")
    assert "were held in all" not in words(state, "image_encoder")


@pytest.mark.parametrize(
    ("again", "inputs", "said"),
    [
        (
            4096,
            1024,
            "4.00 KiB: backward computes it again instead of autograd keeping it; the checkpoint keeps 1.00 KiB",
        ),
        (4096, 0, "4.00 KiB: backward computes it again instead of autograd keeping it (step 9)"),
        (None, 0, "How much was not seen: backward computes it again"),
    ],
)
def test_checkpointed_module_says_recomputed_and_kept(again: int | None, inputs: int, said: str) -> None:
    index, nothing = row_of(MODEL, "text_encoder.blocks.3"), (0,) * len(MODEL.modules)
    recomputed = (*nothing[:index], again, *nothing[index + 1 :])
    kept = (*nothing[:index], inputs, *nothing[index + 1 :])
    state = coop_after(ev.SavedBytesMeasured(9.0, 9, nothing, 0, (), recomputed, kept))
    assert said in words(state, "text_encoder.blocks.3")
    assert said in words(state, "text_encoder")
    assert "computes it again" not in words(state, "image_encoder")
    assert "computes it again" not in words(coop_after(), "text_encoder")


def test_group_has_settings_and_state_bytes() -> None:
    ctx = ~row_of(MODEL, "ctx")
    assert "Its only group" not in words(coop_after(), "ctx"), "nothing was read yet"
    groups = ev.GroupsRead(1.0, 3, ((GroupSettings(2e-3, 0.01),),))
    state = coop_after(groups, ev.OptimizerStateRead(2.0, 9, "ctx", 8196, (("exp_avg", 8192), ("", 4))))
    shown = words(state, "ctx")
    assert "Its only group: learning rate 0.002, weight decay 0.01 (since step 3)." in shown
    assert "State 8.00 KiB: exp_avg 8.00 KiB, the rest 4 B (step 9)." in shown
    two = ev.OptimizersFound(1.0, 3, (OptimizerInfo("AdamW", 2, (ctx,), 0, (1,)),))
    state = coop_after(two, ev.GroupsRead(1.0, 3, ((GroupSettings(1e-3, 0.0), GroupSettings(None, 0.5)),)))
    assert "Group 1 (of 2, counted from 0): weight decay 0.5 (since step 3)." in words(state, "ctx")
    momentum = GroupSettings(
        2e-3, 0.01, (("momentum", 0.9), ("nesterov", True), ("maximize", False), ("betas", (0.9, 0.99)))
    )
    state = coop_after(groups, ev.GroupsRead(2.0, 25, ((momentum,),), 20))
    assert "weight decay 0.01, momentum 0.9, nesterov, betas (0.9, 0.99) (since a step from 21 to 25)." in words(
        state, "ctx"
    )
    none = coop_after(ev.OptimizerStateRead(2.0, 9, "ctx", 0, ()))
    assert "No optimizer keeps any state for it (step 9)." in words(none, "ctx")


def test_history_of_norm_and_ratio_and_every_toggle() -> None:
    ctx = ~row_of(MODEL, "ctx")
    assert "steps 1 to 10" in words(coop_after(steps=10), "ctx")
    narrow = detail_lines(explain(coop_after(steps=40), row_of(MODEL, "ctx")), 68)
    assert any(line_text(line).rstrip().endswith("steps 9 to 40") for line in narrow)
    figures = gradient_stats(ctx, 1e-3, weight=2.0)
    measured = [
        ev.GradientFiguresMeasured(9.0, step, (dataclasses.replace(figures, update_ratio=ratio),))
        for step, ratio in ((3, 1e-3), (6, 0.0), (9, 4e-3))
    ]
    assert "ratio 0 to 0.0040, steps 3 to 9" in words(coop_after(*measured), "ctx")
    toggles = [
        ev.CommandApplied(2.0, step, SetTrainable(step, "ctx", False), f"toggle {step}", (ctx,)) for step in range(11)
    ]
    shown = words(coop_after(*toggles), "ctx")
    told = [line.rpartition(": toggle ")[2] for line in shown.splitlines() if ": toggle " in line]
    assert told == ["10", "9", "8", "7", "6", "5", "4", "3"]
    assert "and 3 times before." in shown
