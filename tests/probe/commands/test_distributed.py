"""Data-parallel wrappers, in a group of one process: the same bits, sensible figures, and no toggles."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import torch
from helpers.summaries import summarised
from helpers.training import square_step, square_steps
from helpers.watched import watched
from torch import Tensor, distributed, nn

from gradtui.probe.samplers.cpu_memory import MallocAllocator
from gradtui.protocol.commands import SetTrainable, Watch
from gradtui.protocol.events import CommandRejected, GradientHistogramsMeasured, GradientsMeasured
from gradtui.protocol.vocabulary import Phase
from gradtui.run.explanation.row import shard_of
from gradtui.run.text.explanation.sentences import shard_words
from gradtui.tui.explanations.explanations import explain
from gradtui.tui.panels.curves import curves_title

X = torch.linspace(-1, 1, 24).view(6, 4)

pytestmark = [
    pytest.mark.skipif(not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


@pytest.fixture(autouse=True)
def _group(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def parallel(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model)


def parallel_with_views(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def sharded(model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (1,))
    for layer in model:  # type: ignore[attr-defined]
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(base: nn.Module, wrap: Callable[[nn.Module], nn.Module]) -> list[Tensor]:
    model = wrap(copy.deepcopy(base))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    square_steps(model, optimizer, X, 4)
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]


@pytest.mark.parametrize("wrap", [parallel, parallel_with_views, sharded], ids=lambda wrap: wrap.__name__)
def test_wrapped_models(wrap: Callable[[nn.Module], nn.Module]) -> None:
    base = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    alone = train(base, wrap)
    with watched() as seen:
        seen.submit(lambda id_: SetTrainable(id_, "", False))
        ours = train(base, wrap)
    assert all(torch.equal(a, b) for a, b in zip(ours, alone))
    assert (seen.state.step, seen.state.micro_steps) == (4, 4)
    assert set(seen.letters().values()) == {"T"}
    assert all(norm is not None and norm > 0 for norm in seen.norms().values())
    (rejected,) = seen.all(CommandRejected)
    # fully_shard supports a freeze; this one would leave nothing that trains.
    assert ("nothing would train" if wrap is sharded else "find_unused_parameters=True") in rejected.reason
    size = sum(p.nbytes for p in base.parameters())
    held = seen.ledgers(Phase.OPTIMIZER)[-1].held
    assert (held.parameters, held.gradients) == (size, size)
    assert held.optimizer_state == 2 * size + 4 * 4


def without_sync(model: nn.Module, last: bool) -> AbstractContextManager[object]:
    """What a script does so that only the last micro-step communicates."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return nullcontext() if last else model.no_sync()
    model.set_requires_gradient_sync(last)  # type: ignore[operator]
    return nullcontext()


@pytest.mark.parametrize("wrap", [parallel, parallel_with_views, sharded], ids=lambda wrap: wrap.__name__)
def test_accumulation_that_communicates_once_a_step(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = wrap(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)))
    norms: list[float] = []
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            for number, part in enumerate(X.split(2)):
                with without_sync(model, number == 2):
                    (model(part).square().mean() / 3).backward()
            gradients = [getattr(p.grad, "_local_tensor", p.grad) for p in model.parameters()]
            norms.append(sum(g.double().square().sum().item() for g in gradients if g is not None) ** 0.5)
            optimizer.step()
            optimizer.zero_grad()
    state = seen.state
    assert (state.step, state.micro_steps, state.skipped_steps, state.optimizer_steps) == (3, 9, 0, [3])
    cycle = [*["forward", "backward", "other"] * 3, "optimizer", "data", "zero_grad", "data"]
    assert seen.phases == ["load", *cycle * 3]
    assert [event.total for event in seen.all(GradientsMeasured)] == pytest.approx(norms, rel=1e-5)
    assert len(state.tree.models) == 1


WIDTH, DEPTH = 512, 4
GRADIENTS = DEPTH * WIDTH * WIDTH * 4


def held_after_backward(wrap: Callable[[nn.Module], nn.Module]) -> tuple[dict[str, int], dict[str, int], int]:
    """By category, from the summary: the bytes when the optimizer has run, and how many more or fewer there are than with
    the model alone, before it is wrapped. And the bytes of the buckets."""
    torch.manual_seed(0)
    with watched(allocator=MallocAllocator()) as seen:
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH)))
        x = torch.ones(8, WIDTH)
        with torch.no_grad():
            model(x)
        before = summarised(seen.state)["phases"]["eval"]["bytes_end"]
        wrapped = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        square_steps(wrapped, optimizer, x, 3)
        summary = summarised(seen.state)
    held = summary["phases"]["optimizer"]["bytes_end"]
    return held, {name: held[name] - before[name] for name in held}, summary["models"][-1]["bucket_bytes"]


def test_data_parallel_training_holds_another_copy_of_gradients() -> None:
    # Its buckets belong to a reducer written in C++: no tensor leads to them, but the wrapper tells their size.
    held_after_backward(parallel)  # What is imported and made once is there when it counts.
    alone, grown_alone, no_buckets = held_after_backward(lambda model: model)
    wrapped, grown, buckets = held_after_backward(parallel)
    assert (no_buckets, buckets) == (0, GRADIENTS)
    assert alone["gradients"] == wrapped["gradients"] == GRADIENTS
    assert grown["total"] - grown_alone["total"] == pytest.approx(GRADIENTS, rel=0.1)
    assert (alone["buckets"], wrapped["buckets"]) == (0, GRADIENTS)
    assert grown["other"] - grown_alone["other"] == pytest.approx(0, abs=0.1 * GRADIENTS)


def test_gradients_that_are_views_of_buckets_count_once() -> None:
    held_after_backward(parallel_with_views)
    _, grown_alone, _ = held_after_backward(lambda model: model)
    with_views, grown, buckets = held_after_backward(parallel_with_views)
    assert buckets == with_views["buckets"] == 0
    assert with_views["gradients"] == GRADIENTS
    assert grown["total"] - grown_alone["total"] == pytest.approx(0, abs=0.1 * GRADIENTS)


def test_spread_tensor_is_measured_only_where_local() -> None:
    """As rank 0 of two whose communication is left out."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.destroy_process_group()
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(X).square().mean().backward()
        local = [p.grad.to_local() for p in model.parameters()]  # type: ignore[union-attr]
        expected = [g.double().square().sum().item() ** 0.5 for g in local]
        optimizer.step()
    parameters = seen.state.tree.parameters
    assert [(info.count, info.local_count) for info in parameters] == [(32, 16), (8, 4), (16, 8), (2, 1)]
    assert list(seen.norms().values()) == pytest.approx(expected, rel=1e-5)
    assert [row["local_count"] for row in summarised(seen.state)["parameters"]] == [16, 4, 8, 1]
    assert curves_title(seen.state) == "L2 of this rank's part"
    assert "holds 16 of the 32 elements, 64 B of 128 B" in (shard_words(shard_of(parameters[:1])) or "")
    assert "holds 16 of the 32 elements, 64 B of 128 B" in str(explain(seen.state, ~0))


def test_histogram_of_sharded_gradient_is_said_local() -> None:
    torch.manual_seed(0)
    model = sharded(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
    with watched(budget=1_000.0) as seen:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in seen.steps(3, {1: lambda number: Watch(number, ("0.weight",))}):
            square_step(model, optimizer, X)
    found = [each for event in seen.all(GradientHistogramsMeasured) for each in event.histograms]
    assert [(each.is_shard, each.elements, each.estimated) for each in found] == [(True, 32, False)] * 2
