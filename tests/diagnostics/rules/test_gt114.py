"""GT114: a copy of a model gets gradients."""

from __future__ import annotations

from dataclasses import replace

from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import ModelInfo
from gradtui.run.state.run_state import RunState


def state_of(states: str, size: int = 4, training: str = "11") -> RunState:
    """A model of two linear modules, each a model of its own: `b` has outputs of another size."""
    tree = run().tree
    modules = [replace(each, depth=0, parent=-1, path=each.name) for each in tree.modules[1:]]
    parameters = [replace(each, module=each.module - 1) for each in tree.parameters]
    parameters[2] = replace(parameters[2], shape=(size, 4))
    models = tuple(ModelInfo(each.name, "Linear", index, index) for index, each in enumerate(modules))
    found = ev.ModelsFound(0.5, 0, models, tuple(modules), tuple(parameters))
    return run(states, owned=(0, 1), model=found, reach="ee", grad_modes="gg", training=training, called=(1, 2))


def test_a_copy_of_the_model_that_trains() -> None:
    found = match("GT114", state_of("TTOO"))
    assert found.message == "b, a copy of a in no optimizer, gets gradients that nothing clears"
    assert found.evidence == {"tensors": 2, "elements": 20}


def test_a_teacher_in_eval_mode() -> None:
    found = match("GT114", state_of("TTOO", size=5, training="10"))
    assert found.message == "b, in eval mode and in no optimizer, gets gradients that nothing clears"
    assert matches("GT114", state_of("TTOO", size=5, training="00")) == []


def test_another_model_and_a_copy_without_gradients() -> None:
    assert matches("GT114", state_of("TTOO", size=5)) == []
    assert matches("GT114", state_of("TTUU")) == []
