"""The cheapest checkpoints with which a step fits into given memory, against all that there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from helpers.examples import nightly
from helpers.forecasts import asked_of
from helpers.watched import Watched
from profiled_steps import CLEARED_FIRST, FILLED_WITH_ZEROS, LOOPS, profiled_run
from torch import Tensor, nn

from gradtui.planner import Forecaster, NoForecastError
from gradtui.planner.stretches import places_of
from gradtui.probe.memory.allocation_log import AllocationLog
from gradtui.protocol.forecasts import Change, ForecastAsked
from gradtui.run.state.forecasts.plans import levels_to_checkpoint

WIDTHS = 48, 160, 16, 96, 64
"""How wide each block is inside."""


class Block(nn.Module):
    """A block of a network, which keeps more the wider it is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up, self.down = nn.Linear(32, width), nn.Linear(width, 32)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))  # type: ignore[no-any-return]


class Stack(nn.Module):
    """Blocks between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Linear(8, 32), nn.Linear(32, 4)
        self.blocks = nn.ModuleList(map(Block, WIDTHS))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


class Segment(nn.Module):
    """Three blocks, and a layer that is none."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.last = nn.ModuleList(Block(64) for _ in range(3)), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.last(x)  # type: ignore[no-any-return]


def profiled(model: nn.Module, width: int, loop: str) -> Watched:
    batch = torch.linspace(-1, 1, 256 * width).view(256, width)
    with pytest.MonkeyPatch.context() as patched:
        # The total of the tests' allocator never changes.
        patched.setattr(AllocationLog, "measured", lambda _, total: None)
        return profiled_run(model, lambda _: (batch,), lambda output: output.square().mean(), loop)


@pytest.fixture(scope="module", params=nightly((CLEARED_FIRST, FILLED_WITH_ZEROS), LOOPS))
def run(request: pytest.FixtureRequest) -> Watched:
    return profiled(Stack(), 8, request.param)


def question_and_blocks(run: Watched) -> tuple[ForecastAsked, tuple[int, ...]]:
    modules = run.state.tree.modules
    return asked_of(run.state), tuple(index for index, module in enumerate(modules) if module.type_name == "Block")


def test_it_is_cheapest_of_all_choices_that_fit(run: Watched) -> None:
    asked, blocks = question_and_blocks(run)
    forecaster = Forecaster()
    assert asked.peaks is not None
    now = asked.peaks.highest[1]
    all_choices: dict[frozenset[int], tuple[int, float]] = {}
    for count in range(len(blocks) + 1):
        for chosen in map(frozenset, combinations(blocks, count)):
            each = replace(asked, change=Change(checkpoints=chosen))
            answer = forecaster.with_peak(forecaster.answer(each), each)
            assert answer.peak is not None
            assert answer.work is not None
            all_choices[chosen] = now + answer.peak, answer.work
    peaks = sorted({peak for peak, _ in all_choices.values()})
    assert len(peaks) > 8
    # Each room that another choice needs, or in .ci/run every fourth of them: a search takes 0.1 s.
    for room in (peaks[0] - 1, *peaks[:: nightly(4, 1)], now + 1000):
        possible = [work for peak, work in all_choices.values() if peak <= room]
        found = forecaster.fit(asked, [blocks], room)
        if found is None:
            assert not possible, room
        else:
            peak, work = all_choices[found.change.checkpoints]
            assert peak <= room
            assert work == min(possible), room
            assert found.peak == peak - now


def test_without_a_profile_nothing_can_be_said(run: Watched) -> None:
    asked, blocks = question_and_blocks(run)
    with pytest.raises(NoForecastError, match="the peak of a step cannot be forecast"):
        Forecaster().fit(replace(asked, peaks=None), [blocks], 1 << 30)


def test_block_that_runs_several_times_is_no_choice(run: Watched) -> None:
    asked, blocks = question_and_blocks(run)
    first, second = blocks[:2]
    once = places_of(asked.operations, blocks[:2])
    assert [block for block in once.blocks if block >= 0] == [first, second]
    calls = tuple(
        call._replace(module=first if call.module == second else call.module) for call in asked.operations.calls
    )
    assert set(places_of(replace(asked.operations, calls=calls), blocks[:2]).blocks) == {-1}


def test_inner_blocks_are_tried_where_none_fits() -> None:
    run = profiled(nn.Sequential(Segment(), Segment()), 32, CLEARED_FIRST)
    modules, (asked, inner) = run.state.tree.modules, question_and_blocks(run)
    levels = list(levels_to_checkpoint(run.state))
    assert [[modules[index].path for index in level] for level in levels] == [
        ["0", "1"],
        [f"{segment}.layers.{layer}" for segment in range(2) for layer in range(3)],
    ]
    forecaster = Forecaster()
    assert asked.peaks is not None

    def peak_with(checkpoints: Iterable[int]) -> int:
        each = replace(asked, change=Change(checkpoints=frozenset(checkpoints)))
        peak = forecaster.with_peak(forecaster.answer(each), each).peak
        assert peak is not None
        assert asked.peaks is not None
        return asked.peaks.highest[1] + peak

    best_of_segments = min(map(peak_with, (levels[0][:1], levels[0][1:], levels[0])))
    assert peak_with(inner) < best_of_segments
    found = forecaster.fit(asked, levels, best_of_segments - 1)
    assert found is not None
    assert found.change.checkpoints <= set(inner)
    assert forecaster.fit(asked, levels[:1], best_of_segments - 1) is None
    outer = forecaster.fit(asked, levels, best_of_segments)
    assert outer is not None
    assert outer.change.checkpoints <= set(levels[0])
