"""Where backward stops and what it never enters, as sentences."""

from __future__ import annotations

from helpers.chains import CHAIN, LEAVES, small_linear, state_of
from helpers.fakes import Node, found
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.backward.barriers import barriers_of
from gradtui.run.state.backward.frontier import Frontier, barriers_before, frontier
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.explanation.backward import before_clause, not_entered_clause
from gradtui.run.text.frontier import frontier_sentence
from gradtui.run.text.units import joined_numbers


def said(reach: str, modes: str = "g" * 9, trainable: str = "111111") -> str | None:
    return frontier_sentence(state_of(reach, modes, trainable).tree)


def why_not_entered(tree: TreeState, index: int) -> str:
    return not_entered_clause(barriers_of(tree, (index,)))


def why_it_stops(tree: TreeState, line: Frontier | None = None) -> str:
    line = line or frontier(tree)
    assert line is not None
    return before_clause(barriers_before(tree, line, range(len(tree.modules))))


def test_what_has_no_parameters_makes_no_frontier() -> None:
    assert said("ep-pppppp") == "Backward runs through every module that ran and has parameters."


def test_reasons_are_told_apart() -> None:
    no_grad = state_of("e------" + "-e", "gnnnnnnng")
    assert why_it_stops(no_grad.tree) == "what comes before it runs under no_grad"
    assert why_not_entered(no_grad.tree, 1) == "it runs under no_grad"
    inference = state_of("e------" + "-e", "giiiiiiig")
    assert why_not_entered(inference.tree, 3) == "it runs in inference mode"
    frozen = state_of("e------" + "-e", trainable="000001")
    assert why_not_entered(frozen.tree, 1) == "nothing in it or before it needs a gradient"
    assert why_it_stops(frozen.tree) == "nothing before it needs a gradient"
    detached = state_of("e------" + "-e")
    assert "detached" in why_not_entered(detached.tree, 1)
    assert said("eepppppp-") == "Backward never enters head: its output is detached from the loss, or not used in it."


def test_what_became_trainable_since_is_not_called_detached() -> None:
    new = state_of("e------" + "-e", trainable="100001", states="-CCCCT")
    assert why_not_entered(new.tree, 1) == "it has not been sampled since it became trainable"
    assert why_it_stops(new.tree) == "embed has not been sampled since it became trainable"
    after = state_of("eeppppp--", trainable="111101", states="TTTTC-")
    assert frontier_sentence(after.tree) == (
        "Backward never enters layers.3 and head: some of them have not been sampled since they became trainable."
    )
    both = state_of("e------" + "-e", trainable="110001", states="-UCCCT")
    assert why_it_stops(both.tree) == "the output of layers is detached from the loss, or not used in it"


def test_many_places_share_common_name() -> None:
    # Three branches that all end where they begin.
    assert said("e-ppeeepp", trainable="011111") == (
        "Backward stops at 3 places within layers: nothing before them needs a gradient. It never enters embed."
    )


def test_module_named_by_number_has_type() -> None:
    net = found(Node("Sequential", "Sequential", (), tuple(small_linear(str(index)) for index in range(3))))
    state = RunState()
    for event in (
        net,
        ev.ParametersClassified(1.0, 1, "---", "001"),
        ev.GradientFlowMeasured(1.0, 1, 0, "e--e", "g" * 4, "1" * 4, (0, 1, 2, 3), (0,)),
    ):
        apply(state, event)
    assert frontier_sentence(state.tree) == (
        "Backward stops at 2 (Linear): nothing before it needs a gradient. It never enters 0 (Linear) and 1 (Linear)."
    )


CLAUSES = (
    ("it runs under no_grad", "what comes before it runs under no_grad"),
    ("its output is detached", "the output of {} is detached from the loss, or not used in it"),
    ("it has not been sampled", "{} has not been sampled since it became trainable"),
)
"""How the reason for one module begins, and the reason for a stop, the first that applies to a module before it."""


@given(st.data())
def test_module_reason_says_why_it_stops(data: st.DataObject) -> None:
    never = data.draw(st.lists(st.sampled_from(LEAVES[:-1]), unique=True, min_size=1).map(sorted))
    reach = "".join("-" if index in never else "e" for index in range(9))
    modes = "".join(data.draw(st.sampled_from("ggn")) if index in never else "g" for index in range(9))
    trainable = "".join(data.draw(st.lists(st.sampled_from("01"), min_size=6, max_size=6)))
    states = "".join(data.draw(st.lists(st.sampled_from("U-"), min_size=6, max_size=6)))
    tree = state_of(reach, modes, trainable, states=states).tree
    reasons = {index: why_not_entered(tree, index) for index in reversed(never)}
    expected = "nothing before it needs a gradient"
    for begin, clause in reversed(CLAUSES):
        of = [index for index, reason in reasons.items() if reason.startswith(begin)]
        expected = clause.format(CHAIN.modules[min(of)].path) if of else expected
    line = frontier(tree)
    assert line.never_entered == tuple(never)
    # The second time the frontier knows it.
    assert [why_it_stops(tree, line), why_it_stops(tree, line), why_it_stops(tree)] == [expected] * 3


def test_names_with_consecutive_numbers_are_joined() -> None:
    assert joined_numbers([]) == []
    assert joined_numbers(["embed", "blocks.0", "blocks.1", "blocks.2", "b"]) == [
        ("embed", 1),
        ("blocks.0–2", 3),
        ("b", 1),
    ]
    assert joined_numbers(["layer01", "layer02", "conv_00"]) == [("layer01", 1), ("layer02", 1), ("conv_00", 1)]
    assert joined_numbers(["b.0", "b.2", "a9", "a10", "b11"]) == [("b.0", 1), ("b.2", 1), ("a9–10", 2), ("b11", 1)]


def test_container_is_not_blamed_for_uncalled_children() -> None:
    before = "the output of layers is detached from the loss, or not used in it"
    assert before in (said("e---- --e", trainable="001111") or ""), "one of its trainable children was called"
    assert said("e----   e", trainable="001111") == (
        "Backward stops at head: nothing before it needs a gradient. It never enters embed and layers."
    )
    tree = state_of("e----   e", trainable="001111").tree
    assert why_not_entered(tree, 3) == "nothing that ran in it or before it needs a gradient"
