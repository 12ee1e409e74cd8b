"""Two models whose optimizers take turns: which step's figures each of them shows."""

from __future__ import annotations

from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import ModelInfo, ModuleInfo, OptimizerInfo, ParameterInfo
from gradtui.run.reducer import apply
from gradtui.run.reducer.relisting import RECORDS_KEPT
from gradtui.run.state.model_records import model_records
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import measured_step, saved_bytes

FOUND = ev.ModelsFound(
    0.0, 0,
    (ModelInfo("g", "G", 0, 1), ModelInfo("d", "D", 1, 2)),
    (ModuleInfo("g", "g", "G", 0, -1, 0, 1, 1, 1), ModuleInfo("d", "d", "D", 0, -1, 1, 1, 1, 1)),
    (ParameterInfo("g.w", ("g.w",), (3,), "float32", 3, 12, 0), ParameterInfo("d.w", ("d.w",), (5,), "float32", 5, 20, 1)),
)  # fmt: skip
OPTIMIZERS = ev.OptimizersFound(0.0, 0, (OptimizerInfo("SGD", 1, (0,), 0), OptimizerInfo("SGD", 1, (1,), 0)))


def step(number: int, optimizer: int, reach: str, saved: tuple[int, int], trainable: str = "11") -> list[ev.Event]:
    return [
        ev.ParametersClassified(number, number, "TT", trainable),
        ev.GradientFlowMeasured(number, number, optimizer, reach, "gg", "11", (0, 1), (12, 20)),
        ev.SavedBytesMeasured(number, number, saved, sum(saved), (-1, -1)),
    ]


def state_of(*steps: list[ev.Event]) -> RunState:
    return state_after(FOUND, OPTIMIZERS, *(event for each in steps for event in each))


def shown(state: RunState) -> list[tuple[int | None, int]]:
    return [(saved_bytes(state.tree, index), measured_step(state.tree, index)) for index in (0, 1)]


def test_each_model_shows_its_last_step() -> None:
    state = state_of(step(1, 1, "-e", (0, 40)), step(2, 0, "ep", (70, 44)), step(3, 1, "-e", (0, 41)))
    assert shown(state) == [(70, 2), (41, 3)]
    assert state.tree.gradient_flow.reach == "ee"


def test_rows_not_entered_again_are_not_kept() -> None:
    state = state_of(step(1, 0, "ee", (70, 40)), step(2, 0, "-e", (0, 41)))
    assert shown(state) == [(0, 2), (41, 2)]


def test_what_nothing_trains_any_more_is_not_kept() -> None:
    state = state_of(step(1, 0, "ee", (70, 40)), step(2, 1, "-e", (0, 41), trainable="01"))
    assert shown(state) == [(0, 2), (41, 2)]


def test_turn_that_does_not_come_again_is_over() -> None:
    turns = [step(number, 1, "-e", (0, number)) for number in range(2, 40)]
    assert shown(state_of(step(1, 0, "ep", (70, 40)), *turns))[0] == (0, 39)
    assert shown(state_of(step(1, 0, "ep", (70, 40)), *turns[:10]))[0] == (70, 1)


def test_saved_bytes_alone_stand_for_every_model() -> None:
    state = state_of([ev.SavedBytesMeasured(4.0, 4, (1, 2), 3)])
    assert shown(state) == [(1, 4), (2, 4)]


def test_records_outlive_the_models() -> None:
    state = state_of(step(1, 0, "ep", (70, 44)))
    alone = (
        (ModelInfo("d", "D", 0, 2),),
        (ModuleInfo("", "d", "D", 0, -1, 0, 1, 1, 1),),
        (ParameterInfo("w", ("w",), (5,), "float32", 5, 20, 0),),
    )
    apply(state, ev.ModelsFound(5.0, 5, *alone))
    gone, stays = model_records(state)
    assert (gone.name, gone.current, gone.step, gone.activation_bytes, gone.gradient_bytes) == ("g", False, 1, 70, 12)
    # Nothing has been measured of it since it was listed anew.
    assert (stays.name, stays.current, stays.step, stays.activation_bytes) == ("d", True, 1, 44)
    assert any(entry.text.startswith("g is no longer used") for entry in state.log)


def test_records_have_a_number() -> None:
    state = RunState()
    for number in range(1, RECORDS_KEPT + 10):
        model = ModelInfo("m", "M", 0, number)
        apply(state, ev.ModelsFound(number, number, (model,), FOUND.modules[:1], FOUND.parameters[:1]))
        apply(state, ev.GradientFlowMeasured(number, number, 0, "e", "g", "1", (0,), (number,)))
    records = model_records(state)
    assert len(records) == RECORDS_KEPT + 1
    assert [record.gradient_bytes for record in records] == [*range(9, RECORDS_KEPT + 10)]


def test_evaluation_tells_of_model_until_it_trains() -> None:
    evaluated = ev.GradientFlowMeasured(1.0, 0, -1, "", "nn", "00", (), (0, 0))
    state = state_of([ev.ParametersClassified(1.0, 0, "--", "10"), evaluated])
    (g, d) = model_records(state)
    assert (g.trainable, g.activation_bytes, d.trainable, d.activation_bytes) == (3, 0, 0, 0)
    assert [(r.grad_mode, r.trainable, r.parameters) for r in (*g.regimes, *d.regimes)] == [
        ("n", True, 3),
        ("n", False, 5),
    ]
    for event in (*step(1, 0, "ee", (7, 4)), evaluated):
        apply(state, event)
    assert [record.activation_bytes for record in model_records(state)] == [7, 4]
