"""The order of the rows: of the first calls, and by a measurement."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.events import gradient_stats
from helpers.fakes import Node, coop_gradient_flow, coop_model, coop_run, found, row_of
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.first_folds import first_folds, stacks_of
from gradtui.run.state.tree_state import TreeState
from gradtui.tui.tree.module_order import CallRanks, execution_sequence
from gradtui.tui.tree.sorting import sorted_rows
from gradtui.tui.tree.tree_columns import SPARK_WIDTH
from gradtui.tui.tree.tree_rows import TreeRows
from gradtui.tui.tree.tree_totals import TreeTotals

MODEL = coop_model()


def shown_paths(rows: TreeRows) -> list[str]:
    return [rows.path(row) for row in rows.rows]


def leaf(name: str) -> Node:
    return Node(name, "Linear", (("weight", (2, 2)),))


def test_siblings_are_in_order_of_their_first_calls() -> None:
    tree = found(
        Node("Net", "Net", (("p", (2,)),), (leaf("a"), Node("b", "Block", (), (leaf("x"), leaf("y"))), leaf("c")))
    )
    # Modules: Net, a, b, b.x, b.y, c. `c` is called first, then `b` with `y` before `x`; `a` is never called.
    sequence = execution_sequence(tree.modules, (1, 0, 3, 5, 4, 2))
    assert list(sequence) == [0, 5, 2, 4, 3, 1]
    rows = TreeRows(TreeState(modules=tree.modules, parameters=tree.parameters), room=10_000)
    rows.put_in_order(sequence)
    assert shown_paths(rows) == [
        "",
        "p",
        "c",
        "c.weight",
        "b",
        "b.y",
        "b.y.weight",
        "b.x",
        "b.x.weight",
        "a",
        "a.weight",
    ]
    rows.set_folded(2, True)
    assert shown_paths(rows) == ["", "p", "c", "c.weight", "b", "a", "a.weight"]


def test_uncalled_container_is_at_first_module() -> None:
    blocks = Node("layers", "ModuleList", (), (leaf("0"), leaf("1")))
    tree = found(Node("Net", "Net", (), (leaf("head"), blocks, leaf("embed"))))
    # Modules: Net, head, layers, layers.0, layers.1, embed. Nothing calls `layers`.
    assert list(execution_sequence(tree.modules, (1, 5, 0, 3, 4, 2))) == [0, 5, 2, 3, 4, 1]


def test_without_ranks_the_order_is_that_of_registration() -> None:
    assert list(execution_sequence(MODEL.modules, ())) == list(range(len(MODEL.modules)))


def test_the_first_known_rank_stays() -> None:
    state = RunState()
    apply(state, MODEL)
    ranks = CallRanks(state.tree)
    assert not ranks.update()
    flow, count = coop_gradient_flow(MODEL, 1), len(MODEL.modules)
    apply(state, replace(flow, called=(1, *(-1,) * (count - 1))))
    assert ranks.update()
    assert ranks.ranks == [1, *(0,) * (count - 1)]
    apply(state, replace(flow, step=2, called=tuple(range(2, count + 2))))
    assert ranks.update()
    assert ranks.ranks == [1, *range(3, count + 2)]
    assert not ranks.update()


def test_stacks_are_numbered_children_of_one_type() -> None:
    stacks = stacks_of(MODEL.modules)
    blocks = tuple(row_of(MODEL, f"text_encoder.blocks.{number}") for number in range(8))
    assert stacks == {row_of(MODEL, "text_encoder.blocks"): blocks}
    layers = tuple(child for i in range(0, 6, 2) for child in (leaf(str(i)), Node(str(i + 1), "ReLU")))
    assert stacks_of(found(Node("Net", "Sequential", (), layers)).modules) == {0: (1, 3, 5)}
    attention = Node("attn", "Attention", (), (leaf("q"), leaf("k"), leaf("v")))
    assert stacks_of(found(Node("Net", "Net", (), (attention,))).modules) == {}


def test_a_deep_network_fills_the_screen() -> None:
    blocks = tuple(Node(str(i), "Block", (), (leaf("a"), leaf("b"))) for i in range(48))
    tree = found(Node("Net", "Net", (), (leaf("embed"), Node("layers", "ModuleList", (), blocks), leaf("head"))))
    rows = TreeRows(TreeState(modules=tree.modules, parameters=tree.parameters), room=24)
    shown = shown_paths(rows)
    assert shown[:6] == ["", "embed", "embed.weight", "layers", "layers.0", "layers.1"]
    assert "layers.47" in shown
    assert shown[-2:] == ["head", "head.weight"]
    own = [module.own_parameters for module in tree.modules]
    few = first_folds(tree.modules, own, stacks_of(tree.modules), 10)
    assert row_of(tree, "layers") in few, "six rows are shown, and the stack keeps its strip"


def test_unlike_sequence_is_unfolded_anyway() -> None:
    """The layers of YOLO are one module of 23 children. Folded, it would leave two rows and a blank panel."""
    layers = tuple(Node(str(i), f"Layer{i}", (), (leaf("conv"), leaf("norm"))) for i in range(23))
    tree = found(Node("Net", "Net", (), (Node("model", "Sequential", (), layers),)))
    for room in (10, 17, 24, 36):
        shown = shown_paths(TreeRows(TreeState(modules=tree.modules, parameters=tree.parameters), room=room))
        assert len(shown) >= room - 6
    alike = tuple(Node(name, "Layer", (), (leaf("conv"), leaf("norm"))) for name in "abcdef")
    groups = found(Node("Net", "Net", (), (Node("first", "Head", (), alike), Node("second", "Body", (), alike))))
    shown = shown_paths(TreeRows(TreeState(modules=groups.modules, parameters=groups.parameters), room=12))
    assert len(shown) == 9, "one of two: that leaves few rows blank"


def test_siblings_are_unfolded_together_or_not() -> None:
    rows = TreeRows(TreeState(modules=MODEL.modules, parameters=MODEL.parameters), room=18)
    folded = rows.folds[0]
    convolutions = {f"image_encoder.conv{number}" for number in (1, 2)}
    assert convolutions <= {module.path for module in MODEL.modules}
    assert convolutions <= folded or not convolutions & folded


def test_modules_are_sorted_by_their_own_time() -> None:
    own = tuple((index * 7) % 11 for index in range(len(MODEL.modules)))
    none = (0,) * len(own)
    state = state_after(MODEL, ev.ModuleTimesMeasured(2.0, 4, own, own, none, none, 3, 1e-6))
    totals = TreeTotals(state.tree, SPARK_WIDTH)
    totals.update(state)
    rows = sorted_rows(state.tree, totals, "time")
    assert sorted(rows) == [index for index, each in enumerate(own) if each]
    assert [own[row] for row in rows] == sorted(filter(None, own), reverse=True)
    assert totals.time(rows[0], own=True) == 10e-9


@pytest.mark.parametrize("column", ["norm", "ratio", "bytes", "saved"])
def test_sorted_rows_are_those_of_the_measurement(column: str) -> None:
    state = state_after(*coop_run(3))
    count = len(MODEL.parameters)
    norms = tuple(None if index % 3 else float((index * 7) % 11) for index in range(count))
    apply(state, ev.GradientsMeasured(2.0, 4, 1.0, None, norms))
    apply(state, ev.ParametersClassified(2.0, 4, "T" * count, "1" * count))
    figures = tuple(gradient_stats(index, 0.001 * ((index * 5) % 7), weight=2.0) for index in range(6))
    apply(state, ev.GradientFiguresMeasured(2.0, 4, figures))
    totals = TreeTotals(state.tree, SPARK_WIDTH)
    totals.update(state)
    rows = sorted_rows(state.tree, totals, column)
    if column == "saved":
        own = state.tree.saved.by_module if state.tree.saved is not None else ()
        assert sorted(rows) == [index for index, size in enumerate(own) if size]
        assert [own[row] for row in rows] == sorted((size for size in own if size), reverse=True)
        return
    values = {
        "norm": dict(enumerate(norms)),
        "ratio": {each.parameter: each.update_ratio for each in figures},
        "bytes": {index: info.bytes for index, info in enumerate(MODEL.parameters)},
    }[column]
    known = [values.get(~row) for row in rows]
    measured = [value for value in known if value is not None]
    assert measured == sorted(measured, reverse=True)
    assert known[len(measured) :] == [None] * (count - len(measured))
    assert sorted(~row for row in rows) == list(range(count))
