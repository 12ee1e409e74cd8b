"""Whether a step gets faster or slower, against the time of models that are written that way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations
from time import thread_time

import pytest
import torch
from helpers.examples import only_nightly
from helpers.recorded_steps import replay_of, train
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradtui.planner import Plan

STEPS, BLOCKS = 20, 6


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """With one thread the time of the processor is that of the step, whatever else runs on the machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def stack() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)) for _ in range(BLOCKS)))


def conv() -> nn.Sequential:
    torch.manual_seed(0)
    blocks = (nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()) for _ in range(BLOCKS))
    return nn.Sequential(*blocks)


def trained_as(model: nn.Sequential, trains: frozenset[int], checkpointed: frozenset[int]) -> nn.Sequential:
    """Return the model, written so that these parameters train and these blocks are checkpointed."""
    for index, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(index in trains)
    for index in checkpointed:
        model[index].forward = partial(checkpoint, model[index].forward, use_reentrant=False)
    return model


def seconds_of_step(model: nn.Sequential, batch: Tensor) -> float:
    began = thread_time()
    model(batch).square().mean().backward()
    return thread_time() - began


@pytest.mark.slow
@only_nightly("measures times on a quiet machine")
@pytest.mark.parametrize(
    ("make", "shape"), [(stack, (256, 256)), (conv, (8, 16, 40, 40))], ids=["matrix products", "convolutions"]
)
def test_plans_a_fifth_apart_keep_their_order(make: type[nn.Sequential], shape: tuple[int, ...]) -> None:
    model, batch = make(), torch.randn(shape)
    run = train(model, lambda _: model(batch).square().mean())
    replay, _, _ = replay_of(run)
    tops = {path: index for index, path in enumerate(module.path for module in run.state.tree.modules)}
    count = len(list(model.parameters()))
    everything, every_block = frozenset(range(count)), frozenset(range(BLOCKS))
    half = frozenset(range(count // 2, count))
    plans = [
        (everything, frozenset[int]()),
        (everything, every_block),
        (half, frozenset[int]()),
        (half, every_block),
        (frozenset(range(count - 2, count)), frozenset[int]()),
        (frozenset(range(2)), frozenset[int]()),
        (frozenset(range(2)), every_block),
    ]
    works = [
        replay.under(Plan(trains, frozenset(tops[str(block)] for block in blocks))).work for trains, blocks in plans
    ]
    models = [trained_as(make(), trains, blocks) for trains, blocks in plans]
    # The models take turns: what slows the machine for some seconds slows all of them.
    rounds = [[seconds_of_step(model, batch) for model in models] for _ in range(STEPS)]
    measured = [(work, min(times)) for work, times in zip(works, zip(*rounds, strict=True), strict=True)]
    compared = 0
    for one, other in combinations(sorted(measured), 2):
        if other[0] >= 1.2 * one[0]:
            compared += 1
            assert other[1] > one[1], measured
    assert compared >= 10
