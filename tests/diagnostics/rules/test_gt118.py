"""GT118: frozen tensors that their own forward writes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import Node, found
from scripted_run import linear, match, matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import BufferInfo
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

MODEL = found(Node("Net", "Net", (), (Node("table", "Embedding", (("weight", (4, 4)),)), linear("b"))))
"""Modules: Net, table, b."""
BUFFERS = (BufferInfo("table.u", (4,), "float32", 4, 16, 1, persistent=True),)


def with_writes(*names: str, trainable: str = "011", training: str = "111", grad_modes: str = "ggg") -> RunState:
    model = replace(MODEL, buffers=BUFFERS)
    state = run("FTT", trainable, model=model, owned=(1, 2), training=training, grad_modes=grad_modes, reach="epp")
    apply(state, ev.OwnForwardWrites(2.0, 3, tuple((1, name) for name in names)))
    return state


@pytest.mark.parametrize("training", ["111", "101"])
def test_a_frozen_parameter_is_written_in_both_modes(training: str) -> None:
    found_one = match("GT118", with_writes("weight", training=training))
    assert found_one.paths == ("table.weight",)


def test_a_buffer_of_a_frozen_module_changes_in_train_mode() -> None:
    assert match("GT118", with_writes("u")).paths == ("table.u",)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("u", {"training": "101"}),
        ("u", {"trainable": "111"}),
        ("weight", {"trainable": "111"}),
        ("u", {"grad_modes": "gng"}),
        ("weight", {"grad_modes": "gng"}),
    ],
    ids=["eval mode", "a buffer that trains", "a weight that trains", "target network", "weight of a target network"],
)
def test_writes_that_are_meant(name: str, options: dict[str, str]) -> None:
    assert matches("GT118", with_writes(name, **options)) == []


def test_a_model_that_is_frozen_in_turns() -> None:
    state = with_writes("u")
    state.tree.switches[0] = 2
    assert matches("GT118", state) == []
