"""What a command would change is said without changing anything."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import coop_run
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.codec import from_words
from gradtui.remote.live.preview import Previews
from gradtui.run.state.forecast import gradient_bytes
from gradtui.run.state.run_state import RunState
from gradtui.run.state.snapshot import snapshot


@pytest.fixture(scope="module")
def state() -> RunState:
    return state_after(*coop_run(40))


def preview(state: RunState, /, **words: Any) -> dict[str, Any]:
    before = snapshot(state)
    found = Previews(lambda at: at(state)).of(from_words(words, 0))
    assert snapshot(state) == before
    assert found is not None
    return found


def test_what_a_freeze_and_an_unfreeze_would_change(state: RunState) -> None:
    tree = state.tree
    frozen = [info for info, flag in zip(tree.parameters, tree.trainable) if flag == "0"]
    chosen = frozen[-1]
    found = preview(state, command="unfreeze", path=chosen.path)
    assert (found["refused"], found["starts"], found["stops"]) == (None, [chosen.path], [])
    (plan,) = found["plans"]
    assert plan["gradients"] - found["now"]["gradients"] == gradient_bytes(chosen)
    assert not plan["exact"], "no step was profiled"
    assert plan["why_not_exact"]
    assert found["command"] == plan["commands"][0] == {"command": "unfreeze", "path": chosen.path}


def test_optimizer_state_that_a_freeze_keeps_stays(state: RunState) -> None:
    trains = [info.path for info, flag in zip(state.tree.parameters, state.tree.trainable) if flag == "1"]
    other = next(info.path for info, flag in zip(state.tree.parameters, state.tree.trainable) if flag == "0")
    assert trains == ["ctx"]
    found = preview(state, command="train_only", selection=other)
    assert (found["stops"], found["starts"]) == (["ctx"], [other])
    dropped = preview(state, command="freeze", path="ctx", state="drop")
    assert dropped["refused"] == "nothing would train: loss.backward() would fail"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"command": "freeze", "path": "nothing.of.it"}, "there is no module or parameter 'nothing.of.it'"),
        ({"command": "unfreeze", "path": "ctx"}, "already"),
        ({"command": "undo"}, "nothing to undo"),
        ({"command": "set_group", "optimizer": 0, "group": 0}, "neither a learning rate nor"),
        ({"command": "set_checkpointing", "path": "none", "on": True}, "no module"),
        ({"command": "train_only", "selection": "re:["}, "re:["),
    ],
)
def test_what_would_be_refused(state: RunState, words: dict[str, Any], reason: str) -> None:
    found = preview(state, **words)
    assert reason in found["refused"]
    assert (found["plans"], found["lines"]) == ([], [])


@pytest.mark.parametrize("command", ["pause", "resume", "stop_training", "zero_gradients"])
def test_a_command_that_changes_no_figure_has_none(state: RunState, command: str) -> None:
    found = preview(state, command=command)
    assert (found["refused"], found["plans"]) == (None, [])


def test_an_ended_run_refuses_all() -> None:
    ended = state_after(*coop_run(10), ev.RunEnded(9.0, 10, 0, None))
    assert preview(ended, command="pause")["refused"] == "the run has ended"
