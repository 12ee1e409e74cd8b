"""What is said of the memory of a model."""

from __future__ import annotations

from dataclasses import replace

from helpers.fakes import MIB, coop_model, coop_run, row_of
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.run.state.selectors import most_saved
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.memory import most_saved_text


def tree_after(*events: ev.Event) -> TreeState:
    state = state_after(*events)
    return state.tree


def with_saved(tree: TreeState, saved: dict[str, int], upstream: dict[str, int] | None = None) -> TreeState:
    """The tree with these saved bytes by path."""
    assert tree.saved is not None
    rows = tuple(saved.get(module.path, 0) for module in tree.modules)
    up = tuple((upstream or {}).get(module.path, -1) for module in tree.modules)
    tree.saved = replace(tree.saved, by_module=rows, total=sum(rows), upstream=up)
    return tree


def test_frozen_encoder_is_named_with_its_parameter() -> None:
    tree = tree_after(*coop_run(3))
    assert most_saved(tree) == row_of(coop_model(), "text_encoder")
    # Eight blocks of six modules that save half a MiB each, and the last norm.
    held = "text_encoder holds 24.5 MiB of the 24.5 MiB saved for backward"
    assert most_saved_text(tree) == f"{held}: it is frozen, but the gradient of ctx passes through it"


def test_smallest_training_part_with_most_is_named() -> None:
    tree = tree_after(*coop_run(3))
    tree.trainable = "1" * len(tree.parameters)
    with_saved(tree, {"image_encoder.conv1": 3 * MIB, "image_encoder.conv2": MIB, "": MIB})
    assert most_saved_text(tree) == (
        "image_encoder.conv1 holds 3.0 MiB of the 5.0 MiB saved for backward: its own parameters need gradients"
    )


def test_module_without_parameters_has_no_reason() -> None:
    tree = tree_after(*coop_run(3))
    ctx = next(index for index, info in enumerate(tree.parameters) if info.path == "ctx")
    path = "text_encoder.blocks.0.mlp.1"
    tree.trainable = "1" * len(tree.parameters)
    with_saved(tree, {path: 4 * MIB}, {path: ctx})
    assert most_saved_text(tree) == (
        f"{path} holds 4.0 MiB of the 4.0 MiB saved for backward: the gradient of ctx passes through it"
    )


def test_where_no_part_holds_most_nothing_is_said() -> None:
    tree = with_saved(tree_after(*coop_run(3)), {"": 2, "image_encoder": 1, "text_encoder": 1})
    assert most_saved_text(tree) is None
    assert most_saved_text(tree_after(*coop_run(1))) is None
