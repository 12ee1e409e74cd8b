"""What autograd keeps under another choice of what trains, against a model that is written that way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from helpers.recorded_steps import ACTIVATION, BATCH, STEPS, Blocks, Doubled, replay_of, train, trainable
from helpers.watched import watched
from patterns import kept, patterns
from torch import Tensor, nn
from torch.utils import checkpoint as checkpointing
from zoo import SPECIMENS

from gradtui.planner import Plan, Replay, Replayed
from gradtui.protocol.commands import SetCheckpointing, TraceStep

UNLIKE_OTHERS = {"checkpointed"}
"""The hooks that count here see nothing of what a checkpointed region keeps."""


@pytest.mark.parametrize("name", sorted(SPECIMENS.keys() - UNLIKE_OTHERS))
def test_checkpointed_bytes_and_gradients_of_written_model(name: str) -> None:
    specimen = SPECIMENS[name]()
    loss = lambda step: specimen.loss(specimen.model(*specimen.batch(step)))  # noqa: E731
    now = trainable(specimen.model)
    replay, _, measured = replay_of(train(specimen.model, loss))
    before = replay.under(Plan(now))
    checked = 0
    for chosen, trains in patterns(specimen.model).items():
        found = kept(specimen.model, trains, lambda: loss(STEPS - 1))
        if found is not None:
            after = replay.under(Plan(trains))
            assert (measured + after.saved - before.saved, after.reached) == found, chosen
            assert after.unknown == ()
            checked += 1
    assert checked >= 5


def recorded(model: nn.Module, loss: Callable[[Tensor], Tensor] = Tensor.sum) -> tuple[Replay, list[int]]:
    """Return the repetition of a step of a model, and the indexes of its blocks."""
    run = train(model, lambda _: loss(model(BATCH)))
    paths = [module.path for module in run.state.tree.modules]
    return replay_of(run)[0], [paths.index(f"blocks.{index}") for index in range(4)]


def test_a_checkpointed_block_keeps_what_it_takes() -> None:
    replay, blocks = recorded(Blocks())
    everything = frozenset(range(8))
    # Each layer keeps its input for its weight, and each tanh its result, which the next layer takes.
    assert replay.under(Plan(everything)).saved == 5 * ACTIVATION
    assert replay.under(Plan(everything, frozenset(blocks[1:3]))).saved == 5 * ACTIVATION
    # The last block keeps its input alone, and no longer the result of its tanh.
    assert replay.under(Plan(everything, frozenset(blocks))).saved == 4 * ACTIVATION


def test_checkpointing_saves_only_where_gradients_pass() -> None:
    replay, blocks = recorded(Blocks())
    last, first = frozenset({6, 7}), frozenset({0, 1})
    before = replay.under(Plan(last))
    assert before.saved == 2 * ACTIVATION
    assert replay.under(Plan(last, frozenset(blocks[:3]))) == before
    # Frozen layers need their weights alone to pass the gradient on, and tanh keeps its result.
    assert replay.under(Plan(first)).saved == 5 * ACTIVATION
    # Three blocks keep what they take, and the first layer its input.
    assert replay.under(Plan(first, frozenset(blocks[1:]))).saved == 4 * ACTIVATION


def of_layers(replayed: Replayed) -> Replayed:
    """Leave out where the work is: until torch 2.10 each checkpoint makes two empty tensors, beside the layers."""
    makes_them = hasattr(checkpointing, "_NoopSaveInputs")
    return replace(replayed, work_by_call={}, by_module={}) if makes_them else replayed


def test_the_scripts_own_checkpoints_stay() -> None:
    replay, _ = recorded(Blocks(checkpointed=frozenset({1, 2})))
    plain, blocks = recorded(Blocks())
    everything = frozenset(range(8))
    expected = plain.under(Plan(everything, frozenset(blocks[1:3])))
    assert of_layers(replay.under(Plan(everything))) == of_layers(expected)


def test_gradtui_s_own_checkpoints_are_those_of_plan() -> None:
    model = Blocks()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched() as run:
        run.commands.submit(lambda number: SetCheckpointing(number, "blocks.1", True))
        for _ in run.steps(6, {5: lambda number: TraceStep(number)}):
            optimizer.zero_grad()
            model(BATCH).sum().backward()
            optimizer.step()
    assert [run.state.tree.modules[index].path for index in run.state.tree.checkpointed] == ["blocks.1"]
    replay, _, _ = replay_of(run)
    plain, blocks = recorded(Blocks())
    everything = frozenset(range(8))
    for checkpointed in (frozenset[int](), frozenset(blocks[1:2]), frozenset(blocks)):
        one, other = (each.under(Plan(everything, checkpointed)) for each in (replay, plain))
        assert of_layers(one) == of_layers(other)


class Twice(nn.Module):
    """Calls one block again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.block(self.block(x)))  # type: ignore[no-any-return]


def test_each_checkpointed_call_keeps_its_input() -> None:
    run = train(model := Twice(), lambda _: model(BATCH).sum())
    replay, everything = replay_of(run)[0], frozenset(range(2))
    # Each call keeps its input, for the weight, and the results of both tanhs, one of which is the next call's input.
    assert replay.under(Plan(everything)).saved == 7 * ACTIVATION
    block = [module.path for module in run.state.tree.modules].index("block")
    assert replay.under(Plan(everything, frozenset({block}))).saved == 3 * ACTIVATION


def test_a_custom_function_passes_the_gradient_on() -> None:
    replay, _ = recorded(Blocks(Doubled.apply))
    for trains, reached in ((range(8), range(8)), (range(4), range(4)), (range(4, 8), range(4, 8))):
        assert replay.under(Plan(frozenset(trains))).reached == frozenset(reached)


def test_script_operations_lead_from_model_to_model() -> None:
    first, second = nn.Linear(8, 8), nn.Linear(8, 1)
    both = nn.ModuleList([first, second])
    with watched() as run:
        optimizer = torch.optim.SGD(both.parameters(), 0.1)
        for _ in range(STEPS):
            run.commands.submit(lambda number: TraceStep(number))
            optimizer.zero_grad()
            second(first(BATCH).exp() * 2.0).sum().backward()
            optimizer.step()
    replay, step, _ = replay_of(run)
    paths = [info.path for info in run.state.tree.parameters]
    weights = [at for at, path in enumerate(paths) if path.endswith("weight")]
    assert len(weights) == 2
    for weight in weights:
        assert replay.under(Plan(frozenset({weight}))).reached == {weight}
    assert replay.under(Plan(frozenset())).saved == 0
    assert any(not operation.name for operation in step.operations)


def test_it_touches_neither_random_generator_nor_grad_mode() -> None:
    specimen = SPECIMENS["dropout"]()
    replay, _, _ = replay_of(train(specimen.model, lambda step: specimen.loss(specimen.model(*specimen.batch(step)))))
    weights = [each.clone() for each in specimen.model.parameters()]
    state = torch.get_rng_state()
    with torch.no_grad():
        for _ in range(3):
            replay.under(Plan(trainable(specimen.model)))
        assert not torch.is_grad_enabled()
    assert torch.equal(state, torch.get_rng_state())
    assert all(map(torch.equal, weights, specimen.model.parameters()))
