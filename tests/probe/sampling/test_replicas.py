"""What a rank measures of what all ranks must have in common, as rank 0 of two whose communication is left out."""

from __future__ import annotations

import math
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers.late_copies import unfinished_copies
from helpers.training import square_step
from helpers.watched import watched
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from gradtui.probe.frozen import bits
from gradtui.probe.frozen.bits import few_elements
from gradtui.probe.runtime import CheckSchedule, ReadingInterval, StepTime
from gradtui.probe.sampling import replicas
from gradtui.probe.torch_private.communication_hooks import averages_every_step
from gradtui.protocol.events import GradientsMeasured, MemoryMeasured, ProcessGroupFound, Progress, ReplicasMeasured

X = torch.linspace(-1, 1, 24).view(6, 4)

pytestmark = [
    pytest.mark.skipif(not distributed.is_available(), reason="no torch.distributed"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


def begin(ranks: int = 2) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    begin()
    yield
    if distributed.is_initialized():
        distributed.destroy_process_group()


def in_ddp(model: nn.Module, **options: Any) -> DistributedDataParallel:
    """A wrapper whose reduced gradients are those of this rank: the group left out cannot reduce any."""
    wrapper = DistributedDataParallel(model, **options)
    # A function with annotations would have to have those that torch expects.
    wrapper.register_comm_hook(None, lambda _state, bucket: _done(bucket.buffer()))
    return wrapper


def _done(value: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(value)
    return future


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


def train(
    model: nn.Module, steps: int, each: Callable[[int, torch.optim.Optimizer], object] = lambda *_: None
) -> torch.optim.Optimizer:
    """Train with the steps 1, 2, …, and call `each` before each of them."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        each(step, optimizer)
        square_step(model, optimizer, X)
    return optimizer


@pytest.mark.parametrize("budget", [100.0, 0.01], ids=["every step is sampled", "steps are buffered"])
def test_what_is_measured_and_when(budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckSchedule, "every", 16)
    alone = net()
    alone[2].bias.requires_grad_(False)
    model = in_ddp(alone)
    with watched(budget=budget) as seen:
        train(model, 70)
    checks = seen.all(ReplicasMeasured)
    assert [event.step for event in checks] == [1, 16, 32, 48, 64]
    for event in checks:
        assert event.listing == seen.state.tree.listing
        assert (event.trainable, event.owned, event.rates) == ("111110", "111111", ((0.01,),))
        assert all(type(each) is int for each in event.checksums)
        # The wrapper broadcasts the statistics.
        assert event.buffers == ()


def test_the_checksums_are_those_of_the_parameters_bytes() -> None:
    model = in_ddp(net())
    sums: list[int] = []
    with watched() as seen:
        train(model, 17, lambda step, _: sums.extend(map(sum_of, model.parameters())) if step == 17 else None)
    assert all(each.numel() <= 64 for each in model.parameters())
    (check,) = [event for event in seen.all(ReplicasMeasured) if event.step == 16]
    assert list(check.checksums) == sums


def sum_of(parameter: torch.Tensor) -> int:
    return zlib.crc32(parameter.detach().numpy().tobytes())


def test_one_process_measures_nothing_of_this() -> None:
    distributed.destroy_process_group()
    with watched() as seen:
        train(net(), 17)
    assert seen.all(ReplicasMeasured) == seen.all(ProcessGroupFound) == []


def test_group_of_one_is_named_and_measures_nothing() -> None:
    distributed.destroy_process_group()
    begin(1)
    with watched() as seen:
        train(in_ddp(net()), 17)
    (found,) = seen.all(ProcessGroupFound)
    assert (found.rank, found.ranks, found.backend, found.step) == (0, 1, "fake", 0)
    assert seen.all(ReplicasMeasured) == []


def test_groups_that_come_and_go() -> None:
    def each(step: int, _optimizer: object) -> None:
        if step == 4:
            distributed.destroy_process_group()
        if step == 18:
            begin(4)

    with watched() as seen:
        train(net(), 32, each)
    found = [(event.step, event.ranks) for event in seen.all(ProcessGroupFound)]
    assert found == [(0, 2), (17, 4)]
    assert [event.step for event in seen.all(ReplicasMeasured)] == [1, 32]


def test_without_a_wrapper_values_are_not_compared() -> None:
    with watched() as seen:
        train(net(), 1)
    (check,) = seen.all(ReplicasMeasured)
    assert check.checksums == (None,) * 6
    assert (check.trainable, check.owned) == ("111111", "111111")


def test_parameters_that_the_wrapper_ignores_are_no_replicas() -> None:
    model = net()
    model._ddp_params_and_buffers_to_ignore = ["0.bias", "1.running_mean"]  # type: ignore[assignment]
    with watched() as seen:
        train(in_ddp(model, broadcast_buffers=False), 1)
    (check,) = seen.all(ReplicasMeasured)
    assert [each is None for each in check.checksums] == [False, True, False, False, False, False]
    assert [buffer.path.rpartition(".")[2] for buffer in seen.state.tree.buffers] == [
        "running_mean",
        "running_var",
        "num_batches_tracked",
    ]
    assert check.buffers == (None, sum_of(model[1].running_var), sum_of(model[1].num_batches_tracked))  # type: ignore[arg-type]


def test_wrapper_over_some_ranks_equalizes_these(monkeypatch: pytest.MonkeyPatch) -> None:
    model = in_ddp(net())
    monkeypatch.setattr(model, "process_group", distributed.new_group([0]))
    with watched() as seen:
        train(model, 1)
    (check,) = seen.all(ReplicasMeasured)
    assert set(check.checksums) == {None}


def test_local_sgd_lets_ranks_differ_on_purpose() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook

    model = DistributedDataParallel(net())
    assert averages_every_step(model)
    model.register_comm_hook(PostLocalSGDState(None, None, 2), post_localSGD_hook)
    assert not averages_every_step(model)


def test_sharded_parameters_are_no_replicas() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    with watched() as seen:
        train(model, 1)
    (check,) = seen.all(ReplicasMeasured)
    assert (check.trainable, check.checksums) == ("1111", (None,) * 4)


def test_rates_are_those_of_the_optimizers_in_use() -> None:
    model = in_ddp(net())
    first = torch.optim.SGD(model.module[0].parameters(), lr=0.1)
    second = torch.optim.Adam(
        [
            {"params": [*model.module[1].parameters()], "lr": torch.tensor(0.25)},
            {"params": [model.module[2].weight], "lr": 0.5},
        ]
    )
    with watched() as seen:
        unused = torch.optim.SGD(model.parameters(), lr=0.7)
        for _ in range(32):
            model(X).square().mean().backward()
            first.step()
            second.step()
    del unused
    (check,) = [event for event in seen.all(ReplicasMeasured) if event.step == 64]
    assert check.rates == ((0.1,), (0.25, 0.5))
    assert check.owned == "111110"


def test_a_rate_on_a_device_is_not_read() -> None:
    model = in_ddp(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        model(X).square().mean().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = torch.empty((), device="meta")
        seen.probe.parts.checks._measure(2)
    (_, check) = seen.all(ReplicasMeasured)
    assert math.isnan(check.rates[0][0])


def test_steps_within_backward_are_not_measured() -> None:
    model = in_ddp(nn.Linear(4, 2))
    optimizers = {each: torch.optim.SGD([each], lr=0.1) for each in model.parameters()}
    for each in model.parameters():
        each.register_post_accumulate_grad_hook(lambda parameter: optimizers[parameter].step())
    with watched() as seen:
        for _ in range(16):
            model(X).square().mean().backward()
    assert seen.state.step == 32
    assert seen.all(ReplicasMeasured) == []


def test_bits_on_device_follow_when_they_have_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = unfinished_copies(monkeypatch, bits)
    monkeypatch.setattr(replicas, "_MAX_UNDER_WAY", 2)
    monkeypatch.setattr(CheckSchedule, "every", 16)
    model = in_ddp(net())
    arrived: list[list[int]] = []

    def each(step: int, _optimizer: object) -> None:
        if step == 40:
            copies[0].wait()
        arrived.append([event.step for event in seen.all(ReplicasMeasured)])

    with watched() as seen:
        train(model, 60, each)
    assert arrived[39] == []
    assert arrived[41] == [1]
    # At step 32 two were under way. At the end the device is waited for.
    assert [event.step for event in seen.all(ReplicasMeasured)] == [1, 16, 48]


def test_a_model_that_is_gone_is_not_kept() -> None:
    model = in_ddp(net())
    reference = weakref.ref(model.module[0].weight)
    with watched() as seen:
        train(model, 2)
        assert seen.all(ReplicasMeasured)
        del model
        assert reference() is None


def test_norms_and_their_rows_are_of_common_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    model = in_ddp(net())
    # Every step takes 1 ms here, and a reading 0.45 ms: 3 % of a step pay for one of 15, so one of 16 is read.
    monkeypatch.setattr(StepTime, "typical", property(lambda _: 1e-3, lambda *_: None), raising=False)
    add = ReadingInterval.add_cost
    monkeypatch.setattr(ReadingInterval, "add_cost", lambda self, _: add(self, 0.45e-3))
    with watched(budget=0.01) as seen:
        train(model, 300)
    sampled = {event.step for event in seen.all(MemoryMeasured)}
    read = {step for step, _ in seen.totals()}
    # The first readings are made before their cost is known.
    assert {step for step in read - sampled if step > 64} == {*range(80, 301, 16)} - sampled
    assert {*range(64, 301, 16)} <= read
    assert seen.all(Progress)[-1].norms_every == 16
    # A tenth of a second are a hundred steps, so rows are at multiples of 128, beside those of the first 32 samples.
    first = sorted(read)[31]
    assert first < 256
    rows = {event.step for event in seen.all(GradientsMeasured) if event.total is not None and event.step > first}
    assert rows == {step for step in (128, 256) if step > first}


@pytest.mark.parametrize("size", [1, 63, 64, 65, 200, 1_000])
def test_over_time_the_elements_are_all(size: int) -> None:
    tensor = torch.arange(size, dtype=torch.float64)
    seen: set[float] = set()
    every = size // min(64, size)
    places = size - (min(64, size) - 1) * every
    # The largest gap between n of such places is at most 1 + 1/φ of their mean gap.
    for turn in range(3 * places):
        found = few_elements(tensor, turn)
        assert found is not None
        assert len(found) == min(64, size) == len(set(found.tolist()))
        seen.update(found.tolist())
    assert seen == set(tensor.tolist())


def test_elements_of_turn_are_same_in_any_process() -> None:
    # 64 of 1,000 elements: every fifteenth, from one of 55 places. 16 / φ is 9.888544, and 0.888544 of 55 is 48.
    found = few_elements(torch.arange(1_000.0), 16)
    assert found.tolist() == [float(48 + 15 * each) for each in range(64)]
