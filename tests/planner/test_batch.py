"""A recorded step scaled to another batch size, against a step that was recorded with that batch size."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from networks import NETWORKS, REFUSED, SECOND, Made, prompts
from patterns import kept
from test_models_of_transformers import MODELS, made
from test_repeated_operations import STEPS, replay_of, train, trainable
from torch import Tensor, nn
from zoo import SPECIMENS

from gradtui.planner import Batch, NoBatchDimensionError, Plan, Replay, batch_of
from gradtui.protocol.operations import Operation, OperationsRecorded, RecordedTensor, TensorNumber, TorchConstant

FACTORS = Fraction(2), Fraction(3), Fraction(1, 2)
REFUSED_OF_THE_ZOO = {"lstm": "is not known"}
CHECKPOINTED = {"checkpointed"}
"""The hooks that count see nothing of what a checkpointed region keeps."""
Step = tuple[nn.Module, Callable[[int], Tensor]]


def repeated(tensor: Tensor, factor: Fraction) -> Tensor:
    """Return as many samples as there would be, in memory of their own."""
    count = int(len(tensor) * factor)
    return tensor.repeat(3, *[1] * (tensor.dim() - 1))[:count].clone()


def of_the_zoo(name: str, factor: Fraction) -> Step:
    specimen = SPECIMENS[name]()
    batches = [tuple(repeated(each, factor) for each in specimen.batch(step)) for step in range(STEPS)]
    return specimen.model, lambda step: specimen.loss(specimen.model(*batches[step]))


def of_a_network(network: Made) -> Step:
    return network.model, lambda _: network.model(*network.inputs).square().sum()


def record_of(step: Step) -> OperationsRecorded:
    return replay_of(train(*step))[1]


def agrees(batch: Batch, before: Step, after: Step, factor: Fraction) -> None:
    """Assert that the scaled step is the one with that batch, to the byte."""
    scaled, real = batch.scaled(factor), record_of(after)
    assert scaled.tensors == real.tensors
    assert scaled.operations == real.operations
    plan = Plan(trainable(before[0]))
    assert Replay(scaled).under(plan) == Replay(real).under(plan)
    peaks = Replay(scaled).peaks(plan)
    assert peaks == Replay(real).peaks(plan)
    assert (peaks is None) == any(getattr(each, "sparse", False) for each in before[0].modules())


@pytest.mark.parametrize("name", sorted(SPECIMENS.keys() - REFUSED_OF_THE_ZOO))
def test_a_scaled_step_of_the_zoo_is_one_with_that_batch(name: str) -> None:
    before = of_the_zoo(name, Fraction(1))
    batch = batch_of(record_of(before))
    assert batch.size == len(SPECIMENS[name]().batch(0)[0])
    for factor in FACTORS:
        if batch.size * factor % 1 == 0:
            agrees(batch, before, of_the_zoo(name, factor), factor)


@pytest.mark.parametrize("name", sorted(SPECIMENS.keys() - REFUSED_OF_THE_ZOO - CHECKPOINTED))
def test_its_kept_bytes_and_gradients_are_those_that_hooks_count(name: str) -> None:
    before, after = of_the_zoo(name, Fraction(1)), of_the_zoo(name, Fraction(3))
    trains = trainable(before[0])
    record = record_of(before)
    now, then = Replay(record).under(Plan(trains)), Replay(batch_of(record).scaled(3)).under(Plan(trains))
    at_one = kept(before[0], trains, lambda: before[1](STEPS - 1))
    # A first step makes the parameters of the lazy one.
    after[1](0)
    at_three = kept(after[0], trains, lambda: after[1](STEPS - 1))
    assert at_one is not None
    assert at_three is not None
    assert then.reached == at_three[1]
    # What the loss outside of the models keeps is as large as the batch, apart from the sizes of a scalar.
    outside = at_one[0] - now.saved
    assert at_three[0] - then.saved in (3 * outside, outside)


@pytest.mark.parametrize("name", REFUSED_OF_THE_ZOO)
def test_what_is_refused_of_the_zoo(name: str) -> None:
    with pytest.raises(NoBatchDimensionError, match=REFUSED_OF_THE_ZOO[name]):
        batch_of(record_of(of_the_zoo(name, Fraction(1))))


SIZES = (4, 5, 2), (4, 4, 2), (4, 8, 4), (4, 4, 4), (2, 5, 2), (16, 4, 4)
"""Batch, length of a sequence and heads, which are equal in every way."""


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_equal_sizes_are_not_confused(name: str, sizes: tuple[int, int, int]) -> None:
    size, length, heads = sizes
    before = of_a_network(NETWORKS[name](size, length, heads))
    batch = batch_of(record_of(before))
    assert batch.size == size
    agrees(batch, before, of_a_network(NETWORKS[name](3 * size, length, heads)), Fraction(3))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    make, reason = REFUSED[name]
    for sizes in SIZES[:2]:
        with pytest.raises(NoBatchDimensionError, match=reason):
            batch_of(record_of(of_a_network(make(*sizes))))


@pytest.mark.parametrize("name", SECOND)
def test_a_batch_in_the_second_dimension_is_found_if_its_size_is_known(name: str) -> None:
    before = of_a_network(SECOND[name](4, 5, 2))
    record = record_of(before)
    with pytest.raises(NoBatchDimensionError):
        batch_of(record)
    agrees(batch_of(record, 4), before, of_a_network(SECOND[name](8, 5, 2)), Fraction(2))
    # With sequences of the same length the first dimension is tried, and refused.
    with pytest.raises(NoBatchDimensionError):
        batch_of(record_of(of_a_network(SECOND[name](4, 4, 2))), 4)


def test_prompts_for_each_class_do_not_depend_on_the_batch() -> None:
    before = of_a_network(prompts(4, 10))
    record = record_of(before)
    with pytest.raises(NoBatchDimensionError, match=r"may be (4 or 10|10 or 4)"):
        batch_of(record)
    agrees(batch_of(record, 4), before, of_a_network(prompts(8, 10)), Fraction(2))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_batch_of_one_is_refused(name: str) -> None:
    with pytest.raises(NoBatchDimensionError, match="one sample"):
        batch_of(record_of(of_a_network(NETWORKS[name](1, 5, 2))))


def test_a_new_size_that_nothing_tells_from_the_batch_is_refused() -> None:
    """`torch.zeros(4)` beside a batch of 4 may be anything if it never meets the batch."""
    tensors = [RecordedTensor((4, 2), (2, 1), "float32", 32), *[RecordedTensor((4, 2), (2, 1), "float32", 32)] * 2]
    operations = [
        Operation("aten.neg.default", (TensorNumber(0),), (), (1,), True, -1),
        Operation("aten.zeros.default", ((4, 2),), (("device", TorchConstant("device")),), (2,), True, -1),
    ]
    with pytest.raises(NoBatchDimensionError, match="nothing tells whether its size 4"):
        batch_of(OperationsRecorded(0.0, 1, tuple(tensors), tuple(operations), (1,)))
    together = Operation("aten.add.Tensor", (TensorNumber(1), TensorNumber(2)), (), (3,), True, -1)
    scaled = batch_of(OperationsRecorded(0.0, 1, (*tensors, tensors[0]), (*operations, together), (3,))).scaled(2)
    assert scaled.operations[1].arguments == ((8, 2),)
    assert [each.bytes for each in scaled.tensors] == [64] * 4


def test_part_of_a_data_set_has_the_bytes_of_the_whole_one() -> None:
    data, layer = torch.zeros(100, 8), nn.Linear(8, 2)
    record = record_of((layer, lambda _: layer(data[:4]).sum()))
    at = next(number for number, each in enumerate(record.tensors) if each.shape == (4, 8))
    assert record.tensors[at].bytes == batch_of(record).scaled(3).tensors[at].bytes == 100 * 8 * 4


def test_a_batch_that_is_no_whole_number_is_refused() -> None:
    batch = batch_of(record_of(of_a_network(NETWORKS["einsum"](4, 5, 2))))
    assert batch.scaled(1.5).tensors[0] != batch.scaled(1.0).tensors[0]
    for factor in (0.1, 1.1, 0.0):
        with pytest.raises(NoBatchDimensionError, match="no whole number"):
            batch.scaled(factor)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", [2, 3, 4, 16])
def test_a_scaled_step_of_transformers_is_one_with_that_batch(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = MODELS[name]

    def step(samples: int) -> Step:
        larger = {key: each.repeat(24, *[1] * (each.dim() - 1))[:samples].clone() for key, each in inputs[3].items()}
        monkeypatch.setitem(MODELS, name, (*inputs[:3], larger))
        model, _ = made(name)
        return model, lambda _: model(**larger).loss

    before = step(size)
    batch = batch_of(record_of(before))
    assert batch.size == size
    for factor in (Fraction(2), Fraction(3)):
        agrees(batch, before, step(int(size * factor)), factor)
