"""What counts as input and as offloaded: batches that are alive, copies on the host, and nothing twice."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections import UserDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from helpers.watched import CountingAllocator, Watched, watched
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.utils.data import DataLoader, TensorDataset

from gradtui.probe.autograd.graph_summary import NOTHING_KEPT
from gradtui.probe.memory.batch_storages import BatchStorages
from gradtui.probe.memory.memory_breakdown import MemoryAccountant
from gradtui.probe.model.tree_builder import build
from gradtui.probe.steps import StepCounter
from gradtui.probe.torch_private.unshown_tensors import ARE_SHOWN
from gradtui.protocol.events import MemoryMeasured
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, MemoryBytes, Phase

ROWS, WIDTH = 32, 16
BATCH = ROWS * WIDTH * 4


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def held_after(seen: Watched, phase: Phase) -> MemoryBytes:
    return seen.ledgers(phase)[-1].held


def whole(seen: Watched) -> bool:
    """Whether in every ledger the categories add up to the total."""
    held = [ledger.held for ledger in seen.all(MemoryMeasured)]
    return bool(held) and all(sum(size or 0 for size in each.within_total().values()) == each.total for each in held)


def test_batch_counts_once_and_under_activations_while_saved() -> None:
    model = nn.Linear(WIDTH, 4)
    with watched() as seen:
        optimizer = sgd(model)
        # Some of these steps are taken apart, with a mode of ours on.
        for _ in range(3):
            x = torch.ones(ROWS, WIDTH)
            model(x).sum().backward()
            optimizer.step()
            del x
            optimizer.zero_grad()
    # The layer's weight needs its input, so until backward is over it is autograd that keeps the batch.
    forward = held_after(seen, Phase.FORWARD)
    assert (forward.input, forward.activations) == (0, BATCH)
    assert held_after(seen, Phase.BACKWARD).input == BATCH
    assert held_after(seen, Phase.OPTIMIZER).input == BATCH
    assert held_after(seen, Phase.ZERO_GRAD).input == 0
    # The first batch is there before the first forward.
    assert held_after(seen, Phase.LOAD).input == BATCH
    assert whole(seen)


def test_unsaved_input_is_there_after_forward() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 4, bias=True))
    model[0].weight.requires_grad_(False)
    with watched() as seen:
        optimizer = sgd(model)
        x = torch.ones(ROWS, WIDTH)
        model(x).sum().backward()
        optimizer.step()
    assert held_after(seen, Phase.FORWARD).input == BATCH


def test_labels_unseen_by_models_count_from_loader() -> None:
    data = TensorDataset(torch.ones(2 * ROWS, WIDTH), torch.zeros(2 * ROWS, dtype=torch.long))
    model = nn.Linear(WIDTH, 4)
    with watched() as seen:
        optimizer = sgd(model)
        for x, y in DataLoader(data, batch_size=ROWS):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for step in (0, 1):
        assert seen.ledgers(Phase.OPTIMIZER)[step].held.input == BATCH + ROWS * 8
        # The loss needs the labels, the layer the batch.
        assert seen.ledgers(Phase.FORWARD)[step].held.input == 0
        # What is known only later is worked out with what autograd keeps.
        assert seen.ledgers(Phase.ZERO_GRAD)[step].held.input == 0
    assert whole(seen)


def test_batch_between_examined_steps_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []
    real = BatchStorages.fetched
    monkeypatch.setattr(BatchStorages, "fetched", lambda *given, **named: (fetched.append(1), real(*given, **named)))
    data = TensorDataset(torch.ones(3_000, WIDTH))
    model = nn.Linear(WIDTH, 4)
    with watched(budget=1e-9) as seen:
        optimizer = sgd(model)
        steps = 0
        for (x,) in DataLoader(data, batch_size=1):
            model(x).sum().backward()
            optimizer.step()
            steps += 1
    examined = len(seen.ledgers(Phase.OPTIMIZER))
    assert 0 < examined < steps / 2
    # One batch may be noted for a step that then turns out to be looked at for its norms alone.
    assert len(fetched) < steps / 2
    assert all(ledger.held.input == WIDTH * 4 for ledger in seen.ledgers(Phase.OPTIMIZER))


@dataclass
class Sample:
    image: Tensor
    text: list[Tensor]


Pair = namedtuple("Pair", ["first", "second"])


class Touchy(dict[str, Any]):
    """Whoever looks into it by its own methods is noticed."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError

    def values(self) -> Any:
        raise AssertionError

    def __getitem__(self, key: str) -> Any:
        raise AssertionError


def test_nested_batches_are_found_without_calling_script() -> None:
    tensors = [torch.ones(size) for size in range(1, 9)]
    a, b, c, d, e, f, g, h = tensors
    batch = [(a, {"b": b}), Sample(c, [d, a]), Pair(e, 3), UserDict({"f": f}), Touchy(g=g), h[2:], "text", None]
    storages = BatchStorages(StepCounter())
    storages.given(0, ((batch,), {"again": a}))
    sizes = sorted(storage.nbytes() for storage in storages.alive())
    assert sizes == [4 * size for size in range(1, 9)]


def test_batch_as_long_as_data_set_is_bounded() -> None:
    storages = BatchStorages(StepCounter())
    x = torch.ones(3)
    storages.given(0, [list(range(1_000_000)), x])
    assert [storage.nbytes() for storage in storages.alive()] == [12]


def test_output_for_another_model_is_no_input() -> None:
    first, second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)
    with watched() as seen:
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.01)
        x = torch.ones(ROWS, WIDTH)
        hidden = first(x)
        second(hidden).sum().backward()
        optimizer.step()
    assert held_after(seen, Phase.BACKWARD).input == BATCH


def test_nothing_of_batch_is_kept_alive_or_changed() -> None:
    model = nn.Linear(WIDTH, 4)
    with watched() as seen:
        optimizer = sgd(model)
        x = torch.ones(ROWS, WIDTH)
        before = pickle.dumps(x)
        got: list[Tensor] = []
        model.register_forward_pre_hook(lambda module, args: got.append(args[0]))
        model(x).sum().backward()
        optimizer.step()
        assert got.pop() is x
        assert pickle.dumps(x) == before
        gone = weakref.ref(x), weakref.ref(x.untyped_storage())
        del x
        gc.collect()
        assert [reference() for reference in gone] == [None, None]
    assert seen.ledgers(Phase.OPTIMIZER)


def test_autograd_still_notices_a_write_to_the_batch() -> None:
    model = nn.Linear(WIDTH, 4)
    with watched():
        x = torch.ones(ROWS, WIDTH)
        loss = model(x).sum()
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_input_of_measured_evaluation_is_known() -> None:
    model = nn.Linear(WIDTH, 4)
    with watched() as seen:
        x = torch.ones(ROWS, WIDTH)
        with torch.no_grad():
            model(x)
    assert held_after(seen, Phase.EVAL).input == BATCH


def test_shared_memory_is_in_no_total() -> None:
    model = nn.Linear(WIDTH, 4)
    with watched() as seen:
        optimizer = sgd(model)
        x = torch.ones(ROWS, WIDTH).share_memory_()
        model(x).sum().backward()
        optimizer.step()
    assert held_after(seen, Phase.OPTIMIZER).input == 0


@pytest.mark.parametrize("pin_memory", [False, True])
def test_saved_on_host_is_offloaded_not_activations(pin_memory: bool) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 4))
    with watched() as seen:
        optimizer = sgd(model)
        x = torch.ones(ROWS, WIDTH)
        with save_on_cpu(pin_memory=pin_memory):
            loss = model(x).sum()
        loss.backward()
        optimizer.step()
    forward = held_after(seen, Phase.FORWARD)
    # Each layer saves its input and the second one its weight, Tanh its result, which is the second one's input. Of the
    # CPU's tensors a copy is made only where it is to be pinned. Before torch 2.10 copies count as other memory.
    copies = BATCH + BATCH + BATCH + model[2].weight.nbytes
    assert forward.offloaded == (copies if pin_memory else BATCH) * ARE_SHOWN
    assert (forward.activations, forward.input) == (0, BATCH)
    assert held_after(seen, Phase.BACKWARD).offloaded == 0
    assert not forward.offload_outside
    assert whole(seen)


class OnADevice(CountingAllocator):
    device_type = "meta"


def test_host_memory_is_offloaded_outside_device_total() -> None:
    """The meta device stands in for one that has memory of its own."""
    model = nn.Sequential(nn.Linear(64, 64, bias=False, device="meta"), nn.Linear(8, 8, bias=False))
    optimizer = torch.optim.Adam(model.parameters())
    small = model[1].weight
    small.grad = torch.ones_like(small)
    optimizer.step()
    ledger, tree = MemoryAccountant(CountingAllocator()), build([("m", model)])
    ledger.devices, ledger.allocator = (torch.device("meta"),), OnADevice()
    for stepped in (True, False):
        taking, _ = ledger.take(tree, [optimizer], stepped=stepped)
        held = taking.divided(NOTHING_KEPT)
        # The parameter, its gradient and two moments; the counter of steps is no offloading.
        assert held.offloaded == 4 * small.nbytes
        assert held.offload_outside
        assert (held.parameters, held.gradients, held.optimizer_state) == (64 * 64 * 4, 0, 0)
        assert "offloaded" not in held.within_total()
        assert sum(size or 0 for size in held.within_total().values()) == held.total


def test_every_category_is_field_and_has_its_place() -> None:
    held = MemoryBytes(1, 2, 3, 4, 5, 8, 36, 6, 7)
    assert list(held.within_total()) == list(MEMORY_CATEGORIES)
    assert sum(size or 0 for size in held.within_total().values()) == held.total


def test_few_of_many_batches_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtui.probe.memory.batch_storages._MAX_STORAGES", 10)
    batches = BatchStorages(StepCounter())
    kept = [torch.zeros(2) for _ in range(100)]
    for batch in kept:
        batches.given(0, (batch,))
        assert len(batches._next) <= 11
        assert len(batches._of_step) <= 11
    batches.begin(on=True)
    last = kept[-1].untyped_storage()
    assert any(storage._cdata == last._cdata for storage in batches.alive())
