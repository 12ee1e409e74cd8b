from __future__ import annotations

import random
import time
from fnmatch import fnmatch

import pytest
from helpers.fakes import Node, coop_model, found, large_model, row_of
from hypothesis import given
from hypothesis import strategies as st

from gradtui.run.state.tree_state import TreeState
from gradtui.tui.tree.tree_rows import TreeRows


def tree_of(event: object) -> TreeState:
    model = event
    return TreeState(modules=model.modules, parameters=model.parameters)  # type: ignore[attr-defined]


COOP = coop_model()


def coop_rows(room: int = 10_000) -> TreeRows:
    return TreeRows(tree_of(COOP), room=room)


def shown_paths(rows: TreeRows) -> list[str]:
    return [rows.path(row) for row in rows.rows]


def test_unfolded_rows_appear_once_below_parent() -> None:
    rows = coop_rows()
    assert sorted(row for row in rows.rows if row >= 0) == list(range(len(COOP.modules)))
    assert sorted(~row for row in rows.rows if row < 0) == list(range(len(COOP.parameters)))
    for row in rows.rows:
        parent = rows.parent(row)
        if parent is not None:
            assert rows.position(parent) < rows.position(row)  # type: ignore[operator]
            assert rows.depth(row) == rows.depth(parent) + 1


def test_own_parameters_come_before_children() -> None:
    rows = coop_rows()
    after_root = [rows.path(row) for row in rows.rows[1:4]]
    assert after_root == ["ctx", "logit_scale", "text_encoder"]


def test_folding_hides_exactly_the_subtree() -> None:
    rows = coop_rows()
    before = shown_paths(rows)
    rows.set_folded(row_of(COOP, "text_encoder"), True)
    assert shown_paths(rows) == [path for path in before if not path.startswith("text_encoder.")]
    rows.set_folded(row_of(COOP, "text_encoder"), False)
    assert shown_paths(rows) == before


def test_a_module_without_anything_below_cannot_be_folded() -> None:
    rows = coop_rows()
    gelu = row_of(COOP, "text_encoder.blocks.0.mlp.1")
    rows.set_folded(gelu, True)
    assert not rows.is_folded(gelu)


def test_folding_all_leaves_the_first_level() -> None:
    rows = coop_rows()
    rows.fold_all()
    assert shown_paths(rows) == ["", "ctx", "logit_scale", "text_encoder", "image_encoder"]
    rows.unfold_all()
    assert len(rows) == len(COOP.modules) + len(COOP.parameters)


@pytest.mark.parametrize("room", [5, 20, 40, 80])
def test_tree_unfolds_as_deep_as_fits(room: int) -> None:
    rows = coop_rows(room)
    assert len(rows) <= max(room, 5)
    deepest = max(rows.depth(row) for row in rows.rows)
    everything = coop_rows()
    one_more = sum(1 for row in everything.rows if everything.depth(row) <= deepest + 1)
    assert one_more > room


def test_folds_survive_a_new_structure_by_path() -> None:
    rows = coop_rows()
    rows.set_folded(row_of(COOP, "text_encoder.blocks"), True)
    bigger = coop_model(blocks=9)
    again = TreeRows(tree_of(bigger), rows.folds)
    assert again.is_folded(row_of(bigger, "text_encoder.blocks"))
    assert not again.is_folded(row_of(bigger, "image_encoder"))


@given(st.sampled_from(["weight", "ln_", "BLOCKS.3", "*.bias", "text*ln_?.weight", "conv[12].*", "nothing", "7.mlp"]))
def test_filter_keeps_matches_and_ancestors(text: str) -> None:
    rows = coop_rows(10)
    rows.set_filter(text)
    everything = coop_rows()

    def matches(row: int) -> bool:
        path = everything.path(row).lower()
        return fnmatch(path, text.lower()) if any(c in text for c in "*?[") else text.lower() in path

    wanted = {row for row in everything.rows if matches(row)}
    assert rows.matches == len(wanted)
    for row in list(wanted):
        parent = everything.parent(row)
        while parent is not None:
            wanted.add(parent)
            parent = everything.parent(parent)
    assert rows.rows == [row for row in everything.rows if row in wanted]


def test_clearing_the_filter_gives_the_folds_back() -> None:
    rows = coop_rows()
    rows.set_folded(row_of(COOP, "text_encoder.blocks"), True)
    before = list(rows.rows)
    rows.set_filter("weight")
    rows.set_folded(row_of(COOP, "image_encoder"), True)
    rows.set_filter("")
    assert rows.rows == before


def test_folding_works_within_a_filter() -> None:
    rows = coop_rows()
    rows.set_filter("bias")
    rows.set_folded(row_of(COOP, "text_encoder"), True)
    assert not any(path.startswith("text_encoder.") for path in shown_paths(rows))
    assert any(path.startswith("image_encoder.") for path in shown_paths(rows))


def test_revealing_unfolds_and_drops_filter() -> None:
    rows = coop_rows()
    rows.fold_all()
    rows.set_filter("conv")
    target = row_of(COOP, "text_encoder.blocks.3.ln_1.bias")
    rows.reveal(target)
    assert rows.position(target) is not None
    assert rows.filter == ""


def test_only_real_matches_count_as_matches() -> None:
    rows = coop_rows()
    rows.set_filter("conv1.weight")
    assert not rows.is_match(row_of(COOP, "image_encoder"))
    assert rows.is_match(row_of(COOP, "image_encoder.conv1.weight"))


def random_tree(seed: int) -> Node:
    chance = random.Random(seed)

    def node(depth: int, index: int) -> Node:
        own = tuple((f"p{i}", (2,)) for i in range(chance.randrange(3)))
        children = tuple(node(depth + 1, i) for i in range(chance.randrange(4))) if depth < 4 else ()
        return Node(f"m{index}", "Module", own, children)

    return node(0, 0)


@given(st.integers(), st.sets(st.integers(min_value=0, max_value=60)))
def test_trees_show_what_no_fold_hides(seed: int, folds: set[int]) -> None:
    tree = tree_of(found(random_tree(seed)))
    rows = TreeRows(tree, room=10_000)
    everything = list(rows.rows)
    folded = {module for module in folds if module < len(tree.modules) and rows.has_children(module)}
    for module in folded:
        rows.set_folded(module, True)

    def hidden(row: int) -> bool:
        parent = rows.parent(row)
        return parent is not None and (parent in folded or hidden(parent))

    assert rows.rows == [row for row in everything if not hidden(row)]


@pytest.mark.slow
def test_huge_model_folds_and_filters_quickly() -> None:
    tree = tree_of(large_model(100_000))
    started = time.thread_time()
    rows = TreeRows(tree, room=1_000_000)
    built = time.thread_time()
    assert len(rows) > 150_000
    rows.set_filter("fc1")
    filtered = time.thread_time()
    rows.set_filter("*.4?.*.bias")
    globbed = time.thread_time()
    # Generous: on an idle machine each is about a fifth of this.
    assert max(built - started, filtered - built, globbed - filtered) < 0.5
