"""The tree of the dashboard, driven by keys and the mouse over a scripted run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.app_session import session
from helpers.fakes import (
    Node,
    coop_model,
    coop_run,
    coop_states,
    found,
    row_of,
)

from gradtui.protocol import events as ev
from gradtui.protocol.commands import (
    SetTrainable,
)
from gradtui.protocol.vocabulary import ModelInfo
from gradtui.tui.screens.detail_dialogs import DetailDialog
from gradtui.tui.widgets import LineView

MODEL = coop_model()


async def test_moving_and_folding() -> None:
    async with session() as run:
        await run.press("down", "down")
        assert run.row == "logit_scale"
        await run.press("down")
        assert run.row == "text_encoder"
        shown = len(run.dashboard.tree_view.rows)
        await run.press("left")
        assert len(run.dashboard.tree_view.rows) < shown
        await run.press("left")
        assert run.row == ""
        await run.press("down", "down", "down", "right", "right")
        assert run.row == "text_encoder.positional_embedding"
        assert len(run.dashboard.tree_view.rows) == shown
        await run.press("z")
        assert run.row == "text_encoder"
        await run.press("plus", "end")
        assert run.row == "image_encoder.fc.bias"
        await run.press("minus")
        assert run.row == "image_encoder"
        await run.press("home")
        assert run.row == ""


async def test_the_cursor_is_always_in_sight() -> None:
    async with session((80, 24)) as run:
        tree = run.dashboard.tree_view
        await run.press("plus", *["pagedown"] * 4, *["up"] * 3)
        height = tree.content_size.height
        assert tree.top <= tree.cursor < tree.top + height
        assert tree.rows.path(tree.rows.rows[tree.cursor]).rpartition(".")[2][:8] in tree.text


async def test_filtering_as_one_types_and_back() -> None:
    async with session() as run:
        before = list(run.dashboard.tree_view.rows.rows)
        await run.press("slash", *"conv1")
        tree = run.dashboard.tree_view
        assert [tree.rows.path(row) for row in tree.rows.rows] == [
            "", "image_encoder", "image_encoder.conv1", "image_encoder.conv1.weight", "image_encoder.conv1.bias",
        ]  # fmt: skip
        assert run.row == "image_encoder.conv1"
        await run.press("down", "enter", "space", "space")
        assert run.sink.submitted == [SetTrainable(1, "image_encoder.conv1.weight", True)]
        assert run.dashboard.pane.filter_input.display
        await run.press("escape")
        assert tree.rows.rows == before
        assert not run.dashboard.pane.filter_input.display
        assert tree.has_focus


async def test_footer_tells_what_keys_do_where_they_go() -> None:
    async with session() as run:
        keys = run.dashboard.keys
        usual = keys.text
        assert "space freeze" in usual
        await run.press("slash", *"conv")
        assert "space" not in keys.text, "it is a letter of the filter now"
        await run.pilot.click(keys, offset=(keys.text.index("keep"), 0))
        await run.pilot.pause()
        assert run.dashboard.tree_view.has_focus
        assert keys.text == usual.replace("space freeze", "space unfreeze"), "the row is frozen"
        assert run.dashboard.pane.filter_input.display
        await run.press("m", "m")
        assert keys.text.startswith(" ↑↓ phase  esc tree  ")
        assert "space" not in keys.text, "it acts on the tree alone"
        before = run.dashboard.memory.text
        await run.pilot.click(keys, offset=(1, 0))
        await run.pilot.pause()
        assert run.dashboard.memory.text != before
        await run.press("escape")
        assert run.dashboard.tree_view.rows.filter == "conv", "esc in a panel leaves the filter alone"
        await run.press("escape")
        assert run.dashboard.tree_view.rows.filter == ""


async def test_a_filter_without_a_match_says_so() -> None:
    async with session() as run:
        await run.press("slash", *"xyz")
        assert "No row matches" in run.dashboard.tree_view.text
        await run.press("enter", "space", "enter")
        assert run.sink.submitted == []


async def test_the_next_problem_is_found_wherever_it_hides() -> None:
    states, trainable = coop_states(MODEL)
    last = row_of(MODEL, "text_encoder.blocks.7.mlp.2.bias")
    letters = list(states)
    letters[~last] = "U"
    async with session(events=[*coop_run(5), ev.ParametersClassified(5.0, 5, "".join(letters), trainable)]) as run:
        assert "1 parameter with a problem" in str(run.dashboard.pane.border_subtitle)
        await run.press("minus", "slash", *"conv", "enter", "exclamation_mark")
        assert run.row == "text_encoder.blocks.7.mlp.2.bias"
        await run.press("right_square_bracket")
        assert run.row == "text_encoder.blocks.7.mlp.2.bias"


async def test_without_a_problem_the_cursor_stays() -> None:
    async with session() as run:
        await run.press("down", "exclamation_mark")
        assert run.row == "ctx"


async def test_the_cursor_and_folds_survive_a_new_structure() -> None:
    async with session() as run:
        await run.press("plus")
        await run.go_to("image_encoder")
        await run.press("left")
        await run.put(coop_model(blocks=9))
        assert run.row == "image_encoder"
        assert "conv1" not in run.dashboard.tree_view.text


async def test_other_models_are_folded_anew() -> None:
    async with session((80, 24)) as run:
        tree = run.dashboard.tree_view
        await run.go_to("image_encoder")
        folds = tree.rows.folds[0]
        listed = found(Node("Other", "Other", (), (Node("image_encoder", "Sequential", (), tuple(
            Node(name, "Linear", (("weight", (2, 2)),)) for name in ("fc1", "fc2")
        )),)))  # fmt: skip
        other = replace(listed, models=(replace(listed.models[0], number=7),))
        await run.put(other)
        assert tree.rows.folds[7] == frozenset() != folds, "all that is in it fits"
        assert run.row == "image_encoder"
        await run.press("left")
        await run.put(replace(other, models=(replace(listed.models[0], number=8),)))
        assert "image_encoder" in tree.rows.folds[8]


def with_an_average(blocks: int = 8) -> ev.ModelsFound:
    """CoOp and a moving average of it: two models, whose names stand before all paths."""
    one = coop_model(blocks)
    modules, parameters = len(one.modules), len(one.parameters)

    def named(name: str, path: str) -> str:
        return f"{name}.{path}".rstrip(".")

    return replace(
        one,
        models=(ModelInfo("CoOp", "CoOp", 0), ModelInfo("EMA", "CoOp", modules, number=1)),
        modules=(
            *(replace(each, path=named("CoOp", each.path)) for each in one.modules),
            *(
                replace(
                    each, path=named("EMA", each.path), parent=each.parent + modules if each.parent >= 0 else -1,
                    first_parameter=each.first_parameter + parameters,
                )
                for each in one.modules
            ),
        ),
        parameters=(
            *(replace(each, path=named("CoOp", each.path), names=(named("CoOp", each.path),)) for each in one.parameters),
            *(
                replace(each, path=named("EMA", each.path), names=(named("EMA", each.path),), module=each.module + modules)
                for each in one.parameters
            ),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_cursor_stays_when_model_appears(size: tuple[int, int]) -> None:
    async with session(size) as run:
        await run.go_to("text_encoder.blocks.7.mlp.2.weight")
        await run.put(with_an_average())
        assert run.row == "CoOp.text_encoder.blocks.7.mlp.2.weight"
        assert "weight" in run.dashboard.tree_view.text
        await run.put(coop_model())
        assert run.row == "text_encoder.blocks.7.mlp.2.weight"


async def test_folds_stay_when_model_appears() -> None:
    async with session() as run:
        tree = run.dashboard.tree_view
        await run.press("plus")
        await run.go_to("image_encoder")
        await run.press("left")
        await run.put(with_an_average())
        assert tree.rows.folds[0] == {"image_encoder"}
        assert tree.rows.folds[1], "the other model has many rows"


async def test_structure_that_is_gone_leaves_no_dangling_cursor() -> None:
    async with session() as run:
        await run.press("plus", "end")
        await run.put(found(Node("Other", "Other", (("w", (2,)),))))
        await run.press("enter", "escape", "space", "down", "down")
        assert run.row in ("", "w")


async def test_the_mouse_selects_folds_toggles_and_explains() -> None:
    async with session() as run:
        tree = run.dashboard.tree_view
        index = tree.rows.position(row_of(MODEL, "text_encoder"))
        assert index is not None
        state = tree._cells.columns.cells_of("state").start
        await run.pilot.click(tree, offset=(state, index))
        assert run.row == "text_encoder"
        assert run.sink.submitted == []
        await run.pilot.click(tree, offset=(state, index))
        assert run.sink.submitted == [], "it is large: a second click confirms it"
        await run.pilot.click(tree, offset=(state, index))
        await run.pilot.pause()
        assert run.sink.submitted == [SetTrainable(1, "text_encoder", True)]
        shown = len(tree.rows)
        await run.pilot.click(tree, offset=(tree._cells.marker_column(row_of(MODEL, "text_encoder")), index))
        assert len(tree.rows) < shown
        await run.pilot.click(tree, offset=(20, 1), times=2)
        await run.pilot.pause()
        assert isinstance(run.app.screen, DetailDialog)


async def test_the_wheel_scrolls_without_moving_the_cursor() -> None:
    async with session((80, 24)) as run:
        await run.press("plus")
        tree = run.dashboard.tree_view
        cursor, first = tree.cursor, tree.text.splitlines()[0]
        tree.scroll_lines(3)
        await run.pilot.pause()
        assert tree.text.splitlines()[0] != first
        assert tree.cursor == cursor


async def test_filter_survives_new_listing() -> None:
    async with session() as run:
        tree = run.dashboard.tree_view
        tree.set_filter("ctx")
        before = [tree.rows.path(row) for row in tree.rows.rows]
        await run.put(coop_model())
        assert [tree.rows.path(row) for row in tree.rows.rows] == before
        assert len(before) < len(MODEL.modules)


@pytest.mark.parametrize("blocks", [2, 12])
async def test_key_after_new_model_is_harmless(blocks: int) -> None:
    async with session() as run:
        model = coop_model(blocks=blocks)
        states, trainable = coop_states(model)
        run.source.put(model, ev.ParametersClassified(2.0, 21, states, trainable))
        run.app._drain()  # what has arrived is known, but the tree was not yet drawn again
        await run.press("slash", *"mlp", "enter", "down", "space", "enter", "escape")
        assert run.row.startswith("text_encoder.blocks.0")


async def test_arrows_move_cursor_during_filter() -> None:
    async with session() as run:
        await run.press("slash", *"mlp")
        first = run.dashboard.tree_view.cursor
        await run.press("down", "down", "up")
        assert run.dashboard.tree_view.cursor == first + 1
        assert run.dashboard.focused is run.dashboard.pane.filter_input
        assert run.dashboard.pane.filter_input.value == "mlp"


async def test_s_sorts_and_keeps_cursor() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.press("s")
        tree = run.dashboard.tree_view
        assert run.row == "ctx", "the row stays the same wherever it is now"
        assert tree.rows.path(tree.rows.rows[0]) == "ctx", "the only one with a norm"
        assert "sorted by norm" in str(run.dashboard.pane.border_subtitle)
        await run.press("s", "s", "s")
        assert tree.sorted.column == "bytes"
        largest = max(MODEL.parameters, key=lambda info: info.bytes)
        assert tree.rows.path(tree.rows.rows[0]) == largest.path
        await run.press("s", "s", "s")
        assert tree.rows.path(tree.rows.rows[0]) == ""


@pytest.mark.parametrize(("over", "column"), [(False, "saved"), (True, "saved"), (False, "norm")])
async def test_empty_sorted_list_says_why(over: bool, column: str) -> None:
    """Autograd keeps nothing in a module of this run, as far as is known; the second model has no parameters."""
    model = coop_model() if column == "saved" else found(Node("m", "Tanh"))
    end = [ev.RunEnded(9.0, 5, 0, None)] if over else []
    async with session(events=[model, *end]) as run:
        tree = run.dashboard.tree_view
        await run.press(*["s"] * (3 if column == "saved" else 1))
        assert tree.sorted.column == column
        assert len(tree.rows) == 0
        text = " ".join(tree.text.split())
        reason = "autograd keeps nothing for backward in any module" if column == "saved" else "no parameters to sort"
        assert reason in text
        assert "s shows another order." in text
        await run.press(*["s"] * (4 if column == "saved" else 6))
        assert tree.sorted.column == ""
        assert len(tree.rows) > 0


async def test_jump_to_unsorted_row_shows_tree() -> None:
    async with session() as run:
        tree = run.dashboard.tree_view
        await run.press("s")
        module = row_of(MODEL, "image_encoder")
        assert module not in tree.rows.rows, "a list by norm has parameters only"
        tree.show_row(module)
        await run.pump()
        assert tree.sorted.column == ""
        assert "sorted by" not in str(run.dashboard.pane.border_subtitle)
        assert "▾" not in run.dashboard.pane._columns.text
        shown = len(tree.rows)
        await run.press("z")
        assert len(tree.rows) != shown, "the keys that fold work again"
        await run.press("s")
        assert tree.sorted.column == "norm"


async def test_free_rows_show_loss_and_what_states_mean() -> None:
    async with session((160, 50)) as run:
        text = run.dashboard.tree_view.text
        assert "● loss" in text
        words = " ".join(text.split())
        assert "trains 1 tensor · passes" in words
        assert "(frozen; the gradient goes through" in words


async def test_enter_unfolds_folded_stack_before_it_explains_it() -> None:
    async with session() as run:
        tree = run.dashboard.tree_view
        stack = row_of(MODEL, "text_encoder.blocks")
        await run.go_to("text_encoder.blocks")
        if not tree.rows.is_folded(stack):
            await run.press("left")
        await run.press("enter")
        assert not tree.rows.is_folded(stack)
        assert run.app.screen is run.dashboard
        await run.press("enter")
        assert isinstance(run.app.screen, DetailDialog)


async def test_low_screen_explains_end_of_backward() -> None:
    async with session((80, 24)) as run:
        await run.pump()
        pane = run.dashboard.pane
        assert "backward stops at ctx" in str(pane.border_title)
        legend = pane.query_one("#states", LineView)
        assert legend.text.startswith("passes: ")
        await run.pilot.resize_terminal(120, 36)
        await run.pump()
        assert not legend.display, "the free rows of the tree say it"
        assert "backward stops at ctx" in str(pane.border_subtitle)
