"""Why a parameter or a module is in its state, for programs."""

from __future__ import annotations

import pytest
from helpers.explained import short
from helpers.fakes import coop_run
from helpers.states import state_after

from gradtui.protocol.codec import BadEntry
from gradtui.records.export.explained import explained
from gradtui.run.explanation.details import details
from gradtui.run.state.run_state import RunState
from gradtui.run.text.explanation.page import page


@pytest.fixture(scope="module")
def state() -> RunState:
    return state_after(*coop_run(120))


def test_every_parameter_and_module_is_explained(state: RunState) -> None:
    for index, info in enumerate(state.tree.parameters):
        found = explained(state, info.path)
        assert (found["path"], found["kind"], found["why"]) == (
            info.path,
            "parameter",
            short(state, ~index),
        )
        assert found["trainable"] is (state.tree.trainable[index] == "1")
    names = {info.path for info in state.tree.parameters}
    for module in state.tree.modules:
        if module.path not in names:
            found = explained(state, module.path)
            assert (found["path"], found["kind"]) == (module.path, "module")
            assert found["parameters"] == module.subtree_parameters


def test_in_full_it_has_what_page_shows(state: RunState) -> None:
    for index, info in enumerate(state.tree.parameters[:3]):
        found = explained(state, info.path, in_full=True)
        assert [each["text"] for each in found["page"]] == [each.words for each in page(details(state, ~index))]
        assert all(each["label"] for each in found["page"]), "a fact without a label has that of the one above"
    assert "page" not in explained(state, info.path)


def test_missing_path_is_refused_with_nearest(state: RunState) -> None:
    path = state.tree.parameters[-1].path
    with pytest.raises(BadEntry, match="did you mean") as refused:
        explained(state, f"{path}x")
    assert path in str(refused.value)
    with pytest.raises(BadEntry, match="there is no model yet"):
        explained(RunState(), "a")
