"""What a command would change is said without changing anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.fakes import coop_run
from helpers.states import state_after
from helpers.training import loss_steps
from helpers.watched import watched
from torch import nn

from gradtui.protocol import events as ev
from gradtui.protocol.codec import from_words
from gradtui.protocol.commands import (
    ClearBreakpoint,
    Command,
    SetCheckpointing,
    SetGroup,
    SetMode,
    SetRowsTrainable,
    SetTrainable,
    TraceGradient,
    TrainOnly,
    Undo,
)
from gradtui.protocol.freezes import RowsInForce
from gradtui.remote.live.preview import Previews
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.forecast import gradient_bytes
from gradtui.run.state.forecasts.plans import plans
from gradtui.run.state.run_state import RunState
from gradtui.run.state.snapshot import snapshot
from gradtui.run.text import refusals
from gradtui.tui.panels.why import why
from gradtui.tui.requests.freeze_choice import typed
from gradtui.tui.requests.requests import Refusal, command_for


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


def test_how_many_rows_would_train() -> None:
    # Other tests share their state, which this one changes.
    state = state_after(*coop_run(40))
    found = preview(state, command="freeze_rows", path="ctx", rows="0:3")
    assert (found["refused"], found["stops"]) == (None, [])
    assert found["lines"][0].startswith("1 of 4 rows")
    apply(state, ev.FrozenRowsChanged(1.0, 1, (RowsInForce(row_index(state, "ctx"), "0:2", 2, 4),)))
    assert preview(state, command="freeze_rows", path="ctx", rows="2")["lines"] == found["lines"]
    assert preview(state, command="unfreeze_rows", path="ctx", rows="1:3")["lines"][0].startswith("3 of 4 rows")
    # An unfreeze of the parameter, which trains, releases its rows.
    assert preview(state, command="unfreeze", path="ctx")["refused"] is None
    assert preview(state, command="unfreeze", path="ctx", restore=True)["refused"] is not None


def row_index(state: RunState, path: str) -> int:
    return next(index for index, info in enumerate(state.tree.parameters) if info.path == path)


def test_optimizer_state_that_a_freeze_keeps_stays(state: RunState) -> None:
    trains = [info.path for info, flag in zip(state.tree.parameters, state.tree.trainable) if flag == "1"]
    other = next(info.path for info, flag in zip(state.tree.parameters, state.tree.trainable) if flag == "0")
    assert trains == ["ctx"]
    found = preview(state, command="train_only", selection=other)
    assert (found["stops"], found["starts"]) == (["ctx"], [other])
    dropped = preview(state, command="freeze", path="ctx", state="drop")
    assert dropped["refused"] == refusals.NOTHING_TRAINS


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"command": "freeze", "path": "nothing.of.it"}, "there is no module or parameter 'nothing.of.it'"),
        ({"command": "unfreeze", "path": "ctx"}, "already"),
        ({"command": "undo"}, "nothing to undo"),
        ({"command": "set_checkpointing", "path": "none", "on": True}, "no module"),
        ({"command": "train_only", "selection": "re:["}, "re:["),
    ],
)
def test_what_would_be_refused(state: RunState, words: dict[str, Any], reason: str) -> None:
    found = preview(state, **words)
    assert reason in found["refused"]
    assert (found["plans"], found["lines"]) == ([], [])


class WithIntegers(nn.Module):
    """A model with a parameter of integers, which can have no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False)
        self.body = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.body(x))  # type: ignore[no-any-return]


REFUSED: list[Callable[[int], Command]] = [
    lambda id_: SetTrainable(id_, "scale", True),
    lambda id_: SetTrainable(id_, "", True),
    lambda id_: SetTrainable(id_, "body.0", True),
    lambda id_: SetTrainable(id_, "body.0", True, restore=True),
    lambda id_: SetTrainable(id_, "scale", False),
    lambda id_: SetTrainable(id_, "body.3", False),
    lambda id_: SetTrainable(id_, "act", False),
    lambda id_: SetTrainable(id_, "", False),
    lambda id_: SetRowsTrainable(id_, "body", False, "0"),
    lambda id_: SetRowsTrainable(id_, "body.0.weight", False, "0:3"),
    lambda id_: SetRowsTrainable(id_, "body.0.weight", False, ":"),
    lambda id_: SetRowsTrainable(id_, "body.0.weight", False, "x"),
    lambda id_: SetRowsTrainable(id_, "body.0.weight", True, "0"),
    lambda id_: SetRowsTrainable(id_, "scale", False, "0"),
    lambda id_: SetRowsTrainable(id_, "scale", True, "0"),
    lambda id_: SetRowsTrainable(id_, "act", True, "0"),
    lambda id_: SetRowsTrainable(id_, "nothing", True, "0"),
    lambda id_: TrainOnly(id_, "scale"),
    lambda id_: TrainOnly(id_, "body"),
    lambda id_: SetCheckpointing(id_, "body.?", True),
    lambda id_: SetCheckpointing(id_, "scale", True),
    lambda id_: SetCheckpointing(id_, "", True),
    lambda id_: SetCheckpointing(id_, "body", False),
    lambda id_: SetMode(id_, "scale", False),
    lambda id_: SetMode(id_, "head", False),
    lambda id_: SetGroup(id_, 1, 0, 0.5),
    lambda id_: SetGroup(id_, 0, 3, 0.5),
    lambda id_: ClearBreakpoint(id_, 9),
    lambda id_: TraceGradient(id_, "nothing"),
    lambda id_: Undo(id_),
]


def test_dry_run_refuses_with_words_of_run() -> None:
    model = WithIntegers()
    optimizer = torch.optim.SGD(model.body.parameters(), 0.1)
    expected: list[str] = []
    with watched() as seen:
        for command in [None, None, None, *REFUSED]:
            if command is not None:
                found = Previews(lambda at: at(seen.state)).of(command(0))
                expected.append(found["refused"])
                seen.commands.submit(command)
            optimizer.zero_grad()
            model(torch.ones(3, 2)).sum().backward()
            optimizer.step()
    assert expected == seen.refusals()


def test_nothing_offers_to_train_integers() -> None:
    model = WithIntegers()
    optimizer = torch.optim.SGD(model.body.parameters(), 0.1)
    with watched() as seen:
        loss_steps(optimizer, lambda: model(torch.ones(3, 2)).sum(), 3)
    state = seen.state
    row = next(~index for index, info in enumerate(state.tree.parameters) if info.path == "scale")
    for key in ("toggle_trainable", "unfreeze_all"):
        assert isinstance(refused := command_for(key, state, row), Refusal)
        assert refusals.not_floating_point("scale", "int8") in refused.reason
    assert "scale is int8" in " ".join(why(state, row, "space").clauses)
    assert "everything" not in {plan.name for plan in plans(state)}
    chosen = typed(state, "unfreeze", "scale")
    assert not isinstance(chosen, str)
    assert chosen.change.startswith("scale is int8")


@pytest.mark.parametrize("command", ["pause", "resume", "stop_training", "zero_gradients"])
def test_a_command_that_changes_no_figure_has_none(state: RunState, command: str) -> None:
    found = preview(state, command=command)
    assert (found["refused"], found["plans"]) == (None, [])


def test_an_ended_run_refuses_all() -> None:
    ended = state_after(*coop_run(10), ev.RunEnded(9.0, 10, 0, None))
    assert preview(ended, command="pause")["refused"] == "the run has ended"
