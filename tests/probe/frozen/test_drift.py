"""Which frozen parameters are seen to move, by whatever means they are written to."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from helpers.late_copies import LateCopy
from helpers.watched import Watched, watched
from torch import nn

from gradtui.probe.frozen import DriftDetector, bits

Write = Callable[[torch.Tensor], object]


def assign(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data * 0.5


WRITES: dict[str, Write] = {
    "in place": lambda tensor: tensor.detach().mul_(0.5),
    "through .data": lambda tensor: tensor.data.mul_(0.5),
    "of .data": assign,
    "a copy through .data": lambda tensor: tensor.data.copy_(tensor.data + 1),
    "not a number": lambda tensor: tensor.data.fill_(float("nan")),
}


def frozen(count: int = 1, dtype: torch.dtype = torch.float32) -> list[tuple[int, torch.Tensor]]:
    torch.manual_seed(0)
    return [(index, nn.Parameter(torch.randn(7, 11).to(dtype) + 1, requires_grad=False)) for index in range(count)]


def look(values: DriftDetector, tensors: list[tuple[int, torch.Tensor]]) -> None:
    """Look at these after a step of no optimizer."""
    values.on_step_post(1, None, tensors, frozenset(), {})


def looked(values: DriftDetector, tensors: list[tuple[int, torch.Tensor]], times: int = 1) -> set[int]:
    for _ in range(times):
        look(values, tensors)
    return values.moved


@pytest.mark.parametrize("name", list(WRITES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_a_write_is_seen_however_it_is_made(name: str, dtype: torch.dtype) -> None:
    values, tensors = DriftDetector(), frozen(3, dtype)
    assert looked(values, tensors, 3) == set()
    WRITES[name](tensors[1][1])
    assert looked(values, tensors) == {1}
    assert looked(values, tensors, 3) == {1}


def test_what_holds_still_never_moves_whatever_its_values() -> None:
    values, tensors = DriftDetector(), frozen(4)
    tensors[0][1].data.fill_(float("nan"))
    tensors[1] = (1, nn.Parameter(torch.zeros(0), requires_grad=False))
    tensors[2] = (2, nn.Parameter(torch.ones(3, dtype=torch.bool), requires_grad=False))
    assert looked(values, tensors, 4) == set()


def test_each_of_many_tensors_has_its_turn() -> None:
    values, tensors = DriftDetector(), frozen(300)
    looked(values, tensors, 5)
    tensors[299][1].data.mul_(2)
    tensors[150][1].data.mul_(2)
    assert looked(values, tensors, 5) == {150, 299}


def test_a_view_is_not_judged_by_its_neighbours() -> None:
    whole = torch.zeros(10, 10)
    columns = whole[:, 2:4]
    values = DriftDetector()
    looked(values, [(0, columns.data)], 2)
    whole.data[:, 5] = 1.0
    tensors = [(0, columns.data)]
    assert looked(values, tensors, 2) == set()


def test_other_memory_order_is_read_as_well() -> None:
    tensor = nn.Parameter(torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last), requires_grad=False)
    values = DriftDetector()
    looked(values, [(0, tensor)], 2)
    tensor.data.add_(1)
    assert looked(values, [(0, tensor)]) == {0}


def test_refrozen_parameter_begins_verification_anew() -> None:
    values, tensors = DriftDetector(), frozen(2)
    looked(values, tensors, 2)
    tensors[0][1].data.add_(1)
    assert looked(values, tensors) == {0}
    assert looked(values, tensors[1:]) == set()
    tensors[0][1].data.add_(1)
    assert looked(values, tensors, 3) == set()


def test_nothing_is_kept_alive() -> None:
    values, tensors = DriftDetector(), frozen(2)
    looked(values, tensors, 3)
    storage = weakref.ref(tensors[0][1])
    del tensors
    gc.collect()
    assert storage() is None


def test_an_average_of_weights_is_shown_as_moved() -> None:
    # As in momentum contrast: the key encoder is frozen, and follows the query encoder through .data.
    torch.manual_seed(0)
    query, key = nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)
    with watched() as seen:
        optimizer = torch.optim.SGD(query.parameters(), lr=0.1)
        for _ in range(4):
            with torch.no_grad():
                goal = key(torch.ones(2, 4))
            (query(torch.ones(2, 4)) - goal).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            for own, other in zip(key.parameters(), query.parameters()):
                own.data = own.data * 0.9 + other.data * 0.1
    moved = [letter == "M" for letter in seen.state.tree.states]
    assert moved == [flag == "0" for flag in seen.state.tree.trainable]
    assert moved.count(True) == 2


def test_part_of_tensor_is_told_by_values() -> None:
    flat = torch.ones(40)
    parts = [(index, nn.Parameter(flat[20 * index : 20 * index + 20], requires_grad=False)) for index in range(2)]
    values = DriftDetector()
    assert looked(values, [parts[0]], 2) == set()
    parts[1][1].detach().add_(1)
    assert parts[0][1]._version == 1
    assert looked(values, [parts[0]], 2) == set()
    parts[0][1].detach().add_(1)
    assert looked(values, [parts[0]], 2) == {0}


def in_turns(seen: Watched, *, turns_off: bool, steps: int = 4) -> set[str]:
    """Two parts with an optimizer each, in turns; of the second one's steps none is looked at. Letters of the second part.

    With `turns_off` it is frozen only while the first one steps; else for good after a step, with a momentum left.
    """
    torch.manual_seed(0)
    pair = nn.ModuleDict({"first": nn.Linear(4, 4), "second": nn.Linear(4, 4)})
    first, second = (torch.optim.SGD(part.parameters(), lr=0.1, momentum=0.9) for part in pair.values())
    x = torch.ones(2, 4)
    letters = set()
    for step in range(steps):
        seen.probe.hooks.active = not turns_off
        if turns_off or step == 0:
            pair["second"](x).square().mean().backward()
        second.step()
        if turns_off:
            second.zero_grad()
        seen.probe.hooks.active = True
        pair["second"].requires_grad_(False)
        pair["second"](pair["first"](x)).square().mean().backward()
        first.step()
        first.zero_grad()
        if turns_off:
            pair["second"].requires_grad_(True)
        letters |= {letter for path, letter in seen.letters().items() if "second" in path}
    return letters


def test_training_in_turns_is_no_movement_while_frozen() -> None:
    with watched() as seen:
        assert in_turns(seen, turns_off=True) == {"F"}


def test_own_optimizer_moving_frozen_is_told_between_turns() -> None:
    with watched() as seen:
        assert "M" in in_turns(seen, turns_off=False)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> type[LateCopy]:
    monkeypatch.setattr(LateCopy, "waiting", [])
    monkeypatch.setattr(bits, "HostCopy", LateCopy)
    return LateCopy


def test_device_samples_are_compared_on_host(late: type[LateCopy]) -> None:
    values, tensors = DriftDetector(), frozen(2)
    look(values, tensors)
    assert all(known.bits is None for known in values._known.values()), "nothing stays on the device"
    late.arrive()
    tensors[1][1].data.mul_(0.5)
    look(values, tensors)
    assert values.moved == set()
    # Of what is looked at now, nothing is known yet; and what was read is of before the next write.
    tensors[0][1].data.mul_(0.5)
    late.arrive()
    assert looked(values, tensors) == {1}
    late.arrive()
    assert looked(values, tensors) == {0, 1}


def test_sample_of_unfrozen_tensor_is_dropped(late: type[LateCopy]) -> None:
    values, tensors = DriftDetector(), frozen(2)
    look(values, tensors)
    look(values, tensors[:1])
    tensors[1][1].data.mul_(0.5)
    look(values, tensors)
    late.arrive()
    look(values, tensors)
    late.arrive()
    assert looked(values, tensors) == set()
