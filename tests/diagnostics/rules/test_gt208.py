"""GT208: the rounding of small updates."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import GradientStats, GroupSettings
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState


def state_of(ratios: list[float], dtype: str = "torch.bfloat16", rate: float = 0.01) -> RunState:
    """The update ratios of `a.weight` in the newest steps."""
    tree = run().tree
    parameters = (replace(tree.parameters[0], dtype=dtype), *tree.parameters[1:])
    state = run(model=ev.ModelsFound(0.5, 0, tree.models, tree.modules, parameters))
    apply(state, ev.GroupsRead(1.0, 1, ((GroupSettings(rate, 0.0),),)))
    for step, ratio in enumerate(ratios, 1):
        figures = GradientStats(0, 1.0, 0.0, 1.0, 0.0, 0, 1.0, ratio, True)
        apply(state, ev.GradientFiguresMeasured(1.0, step, (figures,)))
    return state


@pytest.mark.parametrize(("dtype", "relative_step"), [("bfloat16", 2**-9), ("float16", 2**-12)])
def test_fewer_than_two_percent_of_the_elements_change(dtype: str, relative_step: float) -> None:
    lost = relative_step * 0.01**0.5
    assert match("GT208", state_of([lost] * 3, dtype)).paths == ("a.weight",)
    assert match("GT208", state_of([1.0, lost, lost, lost], dtype)).evidence["update_ratio"] == lost
    assert matches("GT208", state_of([relative_step * 0.03**0.5] * 3, dtype)) == []


def test_too_few_measurements_another_type_and_no_learning_rate() -> None:
    assert matches("GT208", state_of([0.0] * 2)) == []
    assert matches("GT208", state_of([0.0] * 3, "float32")) == []
    assert matches("GT208", state_of([0.0] * 3, rate=0.0)) == []
