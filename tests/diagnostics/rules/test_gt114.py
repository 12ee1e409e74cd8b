"""GT114: a copy of a model gets gradients."""

from __future__ import annotations

from dataclasses import replace

from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import ModelInfo
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState


def state_of(states: str, size: int = 4, training: str = "11", *, is_copy: bool = True) -> RunState:
    """A model of two linear modules, each a model of its own: `b` has outputs of `size`, and the values of `a` if it can."""
    tree = run().tree
    modules = [replace(each, depth=0, parent=-1, path=each.name) for each in tree.modules[1:]]
    parameters = [replace(each, module=each.module - 1) for each in tree.parameters]
    parameters[2] = replace(parameters[2], shape=(size, 4))
    models = tuple(ModelInfo(each.name, "Linear", index, index + 1) for index, each in enumerate(modules))
    found = ev.ModelsFound(0.5, 0, models, tuple(modules), tuple(parameters))
    state = run(states, owned=(0, 1), model=found, reach="ee", grad_modes="gg", training=training, called=(1, 2))
    if is_copy and size == 4:
        apply(state, ev.ModelCopied(0.6, 1, 2))
    return state


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


def test_a_copy_that_the_script_renews_at_each_step() -> None:
    assert match("GT114", state_of("TTTT")).paths == ("b.weight", "b.bias")


def test_a_second_model_of_the_same_shapes_is_no_copy() -> None:
    state = state_of("TTOO", is_copy=False)
    assert matches("GT114", state) == []
    assert match("GT106", state).paths == ("b.weight", "b.bias")
