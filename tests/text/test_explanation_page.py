"""What the page of a row says of backward, of autograd and of former models."""

from __future__ import annotations

import dataclasses

from helpers.explained import at_label, reach_at
from helpers.fakes import coop_model, coop_run, row_of
from helpers.states import coop_after

from gradtui.protocol import events as ev
from gradtui.run.explanation.details import details
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.text.explanation.page import page

MODEL = coop_model()


TEXT, IMAGE = row_of(MODEL, "text_encoder"), row_of(MODEL, "image_encoder")


def test_module_says_why_autograd_keeps_something_or_nothing() -> None:
    state = coop_after(steps=4)
    kept = at_label(state, row_of(MODEL, "text_encoder.blocks.3.mlp.1"), "saved")[0]
    assert "512 KiB for backward" in kept
    assert "for the gradient of ctx, which passes through here" in kept
    nothing = at_label(state, IMAGE, "saved")[0]
    assert nothing == "Nothing for backward: nothing in it or before it needs a gradient (step 2)."
    passes = at_label(state, row_of(MODEL, "text_encoder.token_embedding"), "saved")[0]
    assert "its operations save nothing for that" in passes


def test_bytes_for_own_parameters_say_so() -> None:
    state = coop_after(steps=4)
    tree = state.tree
    letters, flags = "T" * len(tree.parameters), "1" * len(tree.parameters)
    apply(state, ev.ParametersClassified(2.0, 3, letters, flags))
    words = at_label(state, row_of(MODEL, "text_encoder.blocks.3.ln_1"), "saved")[0]
    assert "for the gradients of its own parameters, and for the gradient of ctx" in words
    without = at_label(state, row_of(MODEL, "text_encoder.blocks.3.mlp.1"), "saved")[0]
    assert "its own parameters" not in without


def test_backward_and_grad_mode_in_sentences() -> None:
    state = coop_after(steps=4)
    assert at_label(state, TEXT, "backward") == ["Runs through it to the modules before it (step 2)."]
    assert at_label(state, 0, "backward") == [
        "Runs in it and ends at parameters of its own, but never into image_encoder (step 2)."
    ]
    assert at_label(state, IMAGE, "backward") == [
        "Never enters it: nothing in it or before it needs a gradient (step 2)."
    ]
    assert at_label(state, IMAGE, "ran") == ["With autograd recording; train mode."]
    end = IMAGE + MODEL.modules[IMAGE].subtree_modules
    reach_at(state, IMAGE, "-", "g" * IMAGE + "n" * (end - IMAGE) + "g" * (len(MODEL.modules) - end))
    assert at_label(state, IMAGE, "backward") == ["Never enters it: it runs under no_grad (step 3)."]
    assert at_label(state, IMAGE, "ran")[0].startswith("Under no_grad")
    reach_at(state, IMAGE, " ")
    assert at_label(state, IMAGE, "backward") == ["Forward did not call it (step 4)."]
    assert at_label(state, IMAGE, "saved")[0] == "Nothing for backward: forward did not call it (step 4)."


def test_nothing_is_said_before_anything_is_known() -> None:
    state = RunState()
    apply(state, MODEL)
    assert at_label(state, 0, "backward", "ran", "model", "earlier") == []


def test_root_tells_of_former_models() -> None:
    state = coop_after(steps=4)
    (words,) = at_label(state, 0, "model", "earlier")
    assert at_label(state, 0, "model") == [words]
    ctx = next(info for info in MODEL.parameters if info.path == "ctx")
    rest = sum(info.count for info in MODEL.parameters) - ctx.count
    assert f"{ctx.count:,} trainable, {rest:,} frozen, {ctx.bytes / 1024:.2f} KiB gradients" in words
    assert at_label(state, TEXT, "model", "earlier") == []
    later = dataclasses.replace(MODEL, models=(dataclasses.replace(MODEL.models[0], number=7),))
    apply(state, later)
    assert at_label(state, 0, "model") == []
    (words,) = at_label(state, 0, "earlier")
    assert words.startswith(f"CoOp (step 2): {ctx.count:,} trainable")


def test_several_models_that_are_gone_have_one_label() -> None:
    state = coop_after(steps=4)
    later, last = (dataclasses.replace(MODEL, models=(dataclasses.replace(MODEL.models[0], number=n),)) for n in (7, 8))
    for event in (later, *(each for each in coop_run(4)[3:] if not isinstance(each, ev.ModelsFound)), last):
        apply(state, event)
    labels = [each.label for each in page(details(state, 0))]
    first = labels.index("earlier")
    assert labels[first:] == ["earlier", ""]
