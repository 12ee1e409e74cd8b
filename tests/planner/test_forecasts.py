"""The answers to questions about a change of what trains, and the thread that gives them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from helpers.recorded_steps import ACTIVATION, BATCH, Blocks, Doubled, train
from helpers.summaries import summarised
from helpers.watched import Watched, watched
from torch import Tensor, nn
from zoo import SPECIMENS

from gradtui.planner import Forecaster, ForecastThread, Plan, Replay
from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable, TraceStep
from gradtui.protocol.forecasts import Change, ForecastAsked, ForecastMade
from gradtui.protocol.operations import TensorNumber
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.forecast import Forecast, forecast, question
from gradtui.run.text.forecast import forecast_clauses

WEIGHT, BIAS = 8 * 8 * 4, 8 * 4
"""Bytes of the parameters of a layer of `Blocks`."""


def run_of(model: nn.Module) -> Watched:
    return train(model, lambda _: model(BATCH).sum())


def change_and_question(run: Watched, indices: range, *, trainable: bool) -> tuple[Forecast, ForecastAsked]:
    change = forecast(run.state, indices, trainable)
    asked = question(run.state, change)
    assert asked is not None
    return change, asked


def test_freeze_from_first_layer_frees_their_memory() -> None:
    run = run_of(Blocks())
    change, asked = change_and_question(run, range(4), trainable=False)
    answer = Forecaster().answer(asked)
    # The batch, the result of the first tanh, and that of the second, which the third layer takes and still keeps.
    assert answer.activations == -2 * ACTIVATION
    assert answer.gradients == -2 * (WEIGHT + BIAS)
    assert answer.unknown == ()
    assert answer.kept == run.all(ev.SavedBytesMeasured)[-1].total
    # The first layer no longer saves the batch, and the first tanh not its result. What the second tanh saved, the third layer
    # saves now.
    paths = [module.path for module in run.state.tree.modules]
    assert {(paths[module], size) for module, size in answer.largest} == {
        ("blocks.0.0", -ACTIVATION), ("blocks.0.1", -ACTIVATION), ("blocks.1.1", -ACTIVATION), ("blocks.2.0", ACTIVATION),
    }  # fmt: skip
    assert not change.is_exact
    apply(run.state, answer)
    exact = forecast(run.state, range(4), False)
    assert exact.is_exact
    assert (exact.activations, exact.gradients) == (answer.activations, answer.gradients)
    assert question(run.state, exact) is None
    assert f"activations −{2 * ACTIVATION} B" in forecast_clauses(exact)


def test_unfreeze_adds_gradients_and_saved_bytes() -> None:
    model = Blocks()
    for block in model.blocks[:3]:
        block.requires_grad_(False)
    run = run_of(model)
    _, asked = change_and_question(run, range(2), trainable=True)
    answer = Forecaster().answer(asked)
    # The last layer keeps its input and its tanh's result. The first one adds the batch, and the three tanhs before keep their
    # results, one of which the last layer keeps already.
    assert (answer.activations, answer.gradients) == (3 * ACTIVATION, WEIGHT + BIAS)


def frozen_live(forecast_of: range, path: str) -> Watched:
    """Train; forecast a freeze of these parameters after four steps, and freeze a module then."""
    model = Blocks()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watched() as run:
        for step in run.steps(12, {2: lambda number: TraceStep(number)}):
            if step == 4:
                apply(run.state, Forecaster().answer(change_and_question(run, forecast_of, trainable=False)[1]))
                run.commands.submit(lambda number: SetTrainable(number, path, False))
            optimizer.zero_grad()
            model(BATCH).sum().backward()
            optimizer.step()
    return run


def test_summary_has_forecast_beside_measurement() -> None:
    (entry,) = summarised(frozen_live(range(2), "blocks.0").state)["forecasts"]
    assert entry["command"] == {"command": "freeze", "path": "blocks.0"}
    assert entry["exact"]
    # The batch. The result of the first tanh is kept by the second layer too.
    assert entry["predicted"]["activations"] == entry["measured"]["activations"] == -ACTIVATION
    assert entry["predicted"]["gradients"] == entry["measured"]["gradients"] == -(WEIGHT + BIAS)


def test_forecast_of_other_parameters_is_none_of_freeze() -> None:
    assert summarised(frozen_live(range(4), "blocks.0").state)["forecasts"] == []


def test_answer_of_earlier_choice_is_not_used() -> None:
    run = run_of(Blocks())
    _, asked = change_and_question(run, range(4), trainable=False)
    answer = Forecaster().answer(asked)
    apply(run.state, replace(answer, flags="1" * 7 + "0"))
    assert not forecast(run.state, range(4), False).is_exact
    apply(run.state, replace(answer, unknown=("aten.example.default",)))
    change = forecast(run.state, range(4), False)
    assert not change.is_exact
    assert question(run.state, change) is None, "the same question has the same answer"


def test_custom_function_is_unknown_where_change_decides() -> None:
    run = run_of(Blocks(Doubled.apply))
    for indices, is_known in ((range(2), True), (range(4), False), (range(6, 8), True)):
        _, asked = change_and_question(run, indices, trainable=False)
        assert (Forecaster().answer(asked).unknown == ()) is is_known, indices


def record_of_micro_steps(losses: list[list[Tensor]], model: nn.Module) -> ev.OperationsRecorded:
    """Return the record of a step whose micro-steps run the model on these batches before each backward."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watched() as run:
        for _ in run.steps(3, {2: lambda number: TraceStep(number)}):
            optimizer.zero_grad()
            for batches in losses:
                torch.stack([model(batch).sum() for batch in batches]).sum().backward()
            optimizer.step()
    return run.all(ev.OperationsRecorded)[-1]


def test_equal_micro_steps_are_recorded_once() -> None:
    model = nn.Linear(8, 2)
    once = record_of_micro_steps([[BATCH]], model)
    assert len(record_of_micro_steps([[BATCH], [BATCH], [BATCH]], model).operations) == len(once.operations)
    other = record_of_micro_steps([[BATCH, BATCH], [BATCH]], model)
    assert other.missing == "the step runs backward on graphs of different operations"
    assert other.operations == ()


@pytest.fixture
def asked() -> ForecastAsked:
    return change_and_question(run_of(Blocks()), range(2), trainable=False)[1]


def test_the_thread_answers_the_newest_question(asked: ForecastAsked) -> None:
    answers: list[ForecastMade] = []
    is_there = threading.Event()

    def emit(answer: ForecastMade) -> None:
        answers.append(answer)
        if answer.change.stops == (2,) and answer.is_final:
            is_there.set()

    thread = ForecastThread(emit)
    for stops in ((0,), (1,), (2,)):
        thread.ask(replace(asked, change=Change(stops)))
    assert is_there.wait(30)
    thread.close()
    last = replace(answers[-1], peak=None, peak_phase=None)
    assert last == replace(Forecaster().answer(replace(asked, change=Change((2,)))), is_final=True)
    assert len({answer.change for answer in answers}) <= 3


def test_thread_answers_in_order_with_peaks(asked: ForecastAsked) -> None:
    answers: list[ForecastMade] = []
    may_go_on, is_there = threading.Event(), threading.Event()

    def emit(answer: ForecastMade) -> None:
        answers.append(answer)
        if len(answers) == 1:
            may_go_on.wait(30)
        if answer.change.checkpoints and answer.peak is not None:
            is_there.set()

    first, second = replace(asked, change=Change((0,))), replace(asked, change=Change(checkpoints=frozenset((1,))))
    thread = ForecastThread(emit)
    thread.ask(replace(first, then=second))
    # The panel has the first answer now, and asks for what is still missing.
    thread.ask(second)
    may_go_on.set()
    assert is_there.wait(30)
    thread.close()
    assert asked.peaks is not None
    assert [(answer.change, answer.peak is not None) for answer in answers] == [
        (first.change, False), (first.change, True), (second.change, False), (second.change, True),
    ]  # fmt: skip


def test_error_is_answer_that_is_not_exact(asked: ForecastAsked) -> None:
    answers: list[ForecastMade] = []
    is_there = threading.Event()
    thread = ForecastThread(lambda answer: (answers.append(answer), is_there.set())[0])
    thread.ask(replace(asked, sizes=()))
    assert is_there.wait(30)
    thread.close()
    assert answers[0].unknown == ("the forecast: IndexError",)


def test_error_of_peak_leaves_rest_of_answer(asked: ForecastAsked, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[ForecastMade] = []
    is_there = threading.Event()

    def emit(answer: ForecastMade) -> None:
        answers.append(answer)
        if answer.is_final:
            is_there.set()

    monkeypatch.setattr(Replay, "peaks", lambda *_: 1 // 0)
    thread = ForecastThread(emit)
    thread.ask_all([replace(asked, change=Change((0,))), asked])
    assert is_there.wait(30)
    thread.close()
    # First all without peaks, then the peaks.
    assert [answer.is_final for answer in answers][:3] == [False, False, True]
    assert answers[2] == replace(answers[0], is_final=True)


def test_hundred_forecasts_between_steps_change_no_bit() -> None:
    made: list[ForecastMade] = []

    def run_steps(*, forecasts: int) -> tuple[list[Tensor], Tensor]:
        torch.manual_seed(0)
        specimen = SPECIMENS["dropout"]()
        optimizer = torch.optim.Adam(specimen.model.parameters())
        with watched() as run:
            for step in run.steps(8, {2: lambda number: TraceStep(number)}):
                recorded = run.all(ev.OperationsRecorded) if forecasts else []
                for _ in range(forecasts if recorded else 0):
                    _, asked = change_and_question(run, range(1), trainable=False)
                    forecaster = Forecaster()
                    made.append(forecaster.with_peak(forecaster.answer(asked), asked))
                optimizer.zero_grad()
                specimen.loss(specimen.model(*specimen.batch(step))).backward()
                optimizer.step()
        return [*specimen.model.parameters(), *specimen.model.buffers()], torch.get_rng_state()

    weights, state = run_steps(forecasts=20)
    expected, expected_state = run_steps(forecasts=0)
    assert len(made) == 100
    assert all(map(torch.equal, weights, expected))
    assert torch.equal(state, expected_state)


def two_models(loss: Callable[[nn.Module, nn.Module], Tensor], *, frozen: int) -> Watched:
    """Train one of two models of a layer each, whose parameters are 0 and 1, and 2 and 3."""
    torch.manual_seed(0)
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    both = (first, second)
    both[frozen].requires_grad_(False)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], 0.1)
    with watched() as run:
        for _ in range(3):
            run.commands.submit(lambda number: TraceStep(number))
            optimizer.zero_grad()
            loss(first, second).backward()
            optimizer.step()
    return run


def test_frozen_part_used_by_script_is_unknown() -> None:
    run = two_models(lambda first, second: (first(BATCH) - second(BATCH)).square().mean(), frozen=1)
    first_frozen = run.state.tree.trainable.index("0")
    _, asked = change_and_question(run, range(first_frozen, first_frozen + 2), trainable=True)
    # The loss depends on its result, outside of all models: the graph of a frozen model does not say so.
    assert Forecaster().answer(asked).unknown


def test_earlier_operation_is_not_result_of_frozen_model() -> None:
    def loss(first: nn.Module, second: nn.Module) -> Tensor:
        between = first(BATCH).exp()
        with_frozen = second(BATCH)
        return (first(between) + with_frozen.detach()).sum()

    run = two_models(loss, frozen=1)
    trains = run.state.tree.trainable
    recorded = run.all(ev.OperationsRecorded)[-1]
    replay = Replay(recorded)
    indices = frozenset(index for index, flag in enumerate(trains) if flag == "1")
    bridges = [each for each in recorded.operations if not each.name]
    # exp ran last before the frozen layer. Its result depends on the first layer, and on nothing of the frozen one.
    assert len(bridges) == 1
    frozen = {
        number for number, each in enumerate(recorded.tensors) if each.parameter >= 0 and trains[each.parameter] == "0"
    }
    made_by_frozen = {
        number
        for each in recorded.operations
        if any(argument.number in frozen for argument in each.arguments if isinstance(argument, TensorNumber))
        for number in each.results
    }
    assert not made_by_frozen & {argument.number for argument in bridges[0].arguments}
    assert replay.under(Plan(indices)).reached == indices
