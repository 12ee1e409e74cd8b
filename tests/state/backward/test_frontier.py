"""The frontier and its sentence on trees made by hand."""

from __future__ import annotations

from helpers.chains import CHAIN, LEAVES, state_of
from helpers.fakes import coop_run, row_of
from helpers.states import state_after
from hypothesis import given
from hypothesis import strategies as st

from gradtui.run.reducer import apply
from gradtui.run.state.backward.frontier import frontier, with_ancestors
from gradtui.run.state.run_state import RunState
from gradtui.run.text.frontier import frontier_sentence


def test_unknown_until_a_step_was_measured() -> None:
    state = RunState()
    apply(state, CHAIN)
    assert frontier(state.tree) is None
    assert frontier_sentence(state.tree) is None


def test_it_lies_before_the_first_module_that_trains() -> None:
    state = state_of("e--e--epp", trainable="000111")
    line = frontier(state.tree)
    assert (line.stops, line.never_entered) == ((6,), (1, 4, 5))


def test_what_ran_only_afterwards_is_not_before_it() -> None:
    # The head ran last, and nothing of it is in the graph.
    state = state_of("eepppppp-")
    line = frontier(state.tree)
    assert (line.stops, line.never_entered) == ((), (8,))


def test_prompt_at_root_is_where_it_stops() -> None:
    state = state_after(*coop_run(3))
    line = frontier(state.tree)
    assert line is not None
    tree = state.tree
    assert [tree.parameters[i].path for i in line.stop_parameters] == ["ctx"]
    assert [tree.modules[i].path for i in line.never_entered] == ["image_encoder"]


def test_holders_of_a_module() -> None:
    assert with_ancestors(CHAIN.modules, (6,)) == {0, 3, 6}
    assert row_of(CHAIN, "layers.2") == 6


@given(
    st.text("pe- ?", min_size=9, max_size=9),
    st.text("gni ?", min_size=9, max_size=9),
    st.text("01-", min_size=6, max_size=6),
)
def test_any_letters_make_sentence_and_parts_never_overlap(reach: str, modes: str, trainable: str) -> None:
    state = state_of(reach, modes, trainable)
    line = frontier(state.tree)
    assert all(reach[index] == "e" for index in line.stops)
    assert all(reach[index] == "-" for index in line.never_entered)
    for index in line.stops:
        inside = range(index, index + CHAIN.modules[index].subtree_modules)
        assert not set(inside) & set(line.never_entered)
    words = frontier_sentence(state.tree)
    assert words is None or words.endswith(".")


@given(st.data())
def test_it_stops_where_something_was_called_before(data: st.DataObject) -> None:
    reach = "e" + "".join(data.draw(st.lists(st.sampled_from("e-"), min_size=8, max_size=8)))
    called = (0, *data.draw(st.lists(st.integers(-1, 9), min_size=8, max_size=8)))
    line = frontier(state_of(reach, called=called).tree)
    assert line is not None

    def subtree(index: int) -> range:
        return range(index, index + CHAIN.modules[index].subtree_modules)

    first = {
        index: min((called[each] for each in subtree(index) if called[each] >= 0), default=None) for index in range(9)
    }
    parents = {index: module.parent for index, module in enumerate(CHAIN.modules)}
    missing = [i for i in LEAVES if reach[i] == "-"] + ([3] if reach[3] == "-" else [])
    never = sorted(i for i in missing if not (parents[i] == 3 and reach[3] == "-"))
    before = min((rank for index in never if (rank := first[index]) is not None), default=None)
    holding = {0} | {parents[index] for index in never} if never else set[int]()
    ends = {i for i in range(9) if reach[i] == "e" and i not in holding}
    topmost = {i for i in ends if not (parents[i] == 3 and 3 in ends) and not (0 in ends and i != 0)}
    later = {i for i in topmost if before is not None and (rank := first[i]) is not None and rank > before}
    assert line.never_entered == tuple(never)
    assert line.stops == tuple(sorted(later))
