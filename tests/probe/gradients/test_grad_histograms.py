"""Histograms of watched gradients: against numpy in float64, and only for what is watched."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers.training import seeded_net
from helpers.watched import Watched, watched
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gradtui.probe.gradients import grad_histograms
from gradtui.probe.gradients.grad_histograms import GradHistograms, by_sorting
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.protocol.commands import Watch
from gradtui.protocol.events import CommandApplied, GradientFiguresMeasured, GradientHistogramsMeasured
from gradtui.protocol.measurements import BINS, LOWEST, GradientHistogram

X = torch.linspace(-1, 1, 24).view(6, 4)
EDGES = np.ldexp(1.0, np.arange(LOWEST, LOWEST + BINS + 1))


def look(gradient: Tensor, scale: float | None = None) -> GradientHistogram | None:
    """The histogram of a gradient, as the probe takes it."""
    found: list[GradientHistogram] = []
    watching = GradHistograms(lambda _, histograms: found.extend(histograms))
    watching._indices = frozenset({3})
    parameter = nn.Parameter(torch.zeros(gradient.shape, dtype=gradient.dtype))
    parameter.grad = gradient
    watching.before_step(1, [(3, parameter)], None if scale is None else torch.tensor(scale))
    return found[0] if found else None


def check(found: GradientHistogram | None, values: np.ndarray) -> None:
    """Against numpy's histogram of the same numbers in float64."""
    assert found is not None
    sizes = np.abs(values)
    finite = np.isfinite(sizes)
    counts, _ = np.histogram(sizes[finite & (sizes < EDGES[-1])], EDGES)
    assert found.counts == tuple(counts.tolist())
    assert found.smaller == np.count_nonzero((sizes > 0) & (sizes < EDGES[0]))
    assert found.larger == np.count_nonzero(finite & (sizes >= EDGES[-1]))
    assert found.zeros == np.count_nonzero(sizes == 0)
    assert found.nan == np.count_nonzero(np.isnan(sizes))
    assert found.inf == np.count_nonzero(np.isinf(sizes))
    assert found.seen == found.elements == values.size
    assert not found.estimated


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_histogram_is_that_of_numpy(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    gradient = (torch.randn(70_001, dtype=torch.float64) * 10.0 ** torch.randint(-18, 6, (70_001,))).to(dtype)
    gradient[::97] = 0
    gradient[5], gradient[6], gradient[7] = math.nan, math.inf, -math.inf
    found = look(gradient)
    check(found, gradient.double().numpy())
    assert found is not None
    assert found.positive == int((gradient > 0).sum())


@given(st.lists(st.floats(width=32) | st.sampled_from([0.0, -0.0, 2.0**LOWEST, 1.0, 2.0**-24, 4096.0]), min_size=1))
def test_any_number_is_in_its_bin(values: list[float]) -> None:
    check(look(torch.tensor(values)), np.array(values, dtype=np.float32).astype(np.float64))


@given(st.lists(st.integers(0, BINS + 4), min_size=1, max_size=200))
def test_what_is_done_on_device_counts_same(kinds: list[int]) -> None:
    tensor = torch.tensor(kinds, dtype=torch.int32)
    assert by_sorting(tensor).tolist() == torch.bincount(tensor, minlength=BINS + 5).tolist()


def test_of_complex_elements_the_magnitude_counts() -> None:
    gradient = torch.tensor([3 + 4j, 0j, 1e-3j, complex(math.nan, 0)])
    check(look(gradient), np.array([5.0, 0.0, np.float64(np.float32(1e-3)), math.nan]))


def test_a_sparse_gradients_other_elements_are_zeros() -> None:
    gradient = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.ones(2, 4), (10, 4), check_invariants=True)
    check(look(gradient), gradient.to_dense().double().numpy().ravel())
    empty = torch.sparse_coo_tensor(torch.zeros(1, 0), torch.ones(0, 4), (10, 4), check_invariants=True)
    assert look(empty) is None


def test_a_transposed_or_expanded_gradient() -> None:
    check(look(torch.arange(6.0).view(2, 3).T), np.arange(6.0))
    check(look(torch.tensor(0.5).expand(3, 4)), np.full(12, 0.5))
    assert look(torch.zeros(0, 3)) is None


def test_a_loss_scalers_factor_is_taken_out() -> None:
    check(look(torch.tensor([1024.0, 2.0, -512.0]), scale=1024.0), np.array([1.0, 2 / 1024, -0.5]))


def test_large_gradient_is_sampled_all_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grad_histograms, "MAX_ELEMENTS", 4_096)
    # A quarter of the columns is zero: a sample that keeps to some columns would miss that.
    gradient = torch.ones(512, 64)
    gradient[:, ::4] = 0
    found = look(gradient)
    assert found is not None
    assert found.estimated
    assert found.elements == 512 * 64
    assert 500 <= found.seen <= 1_024
    assert found.zeros / found.seen == pytest.approx(0.25, abs=0.02)


def histograms(seen: Watched) -> list[tuple[int, GradientHistogram]]:
    return [(event.step, each) for event in seen.all(GradientHistogramsMeasured) for each in event.histograms]


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    optimizer.zero_grad()
    loss: Tensor = model(X).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def test_nothing_is_taken_of_what_nobody_watches() -> None:
    model = seeded_net()
    with watched(budget=1_000.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(4):
            train(model, optimizer)
    assert not histograms(seen)


def test_watched_parameter_is_examined_until_released() -> None:
    model = seeded_net()
    gradients: dict[int, Tensor] = {}
    with watched(budget=1_000.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(1, 9):
            if step == 3:
                seen.submit(lambda number: Watch(number, ("2.weight", "nothing.of.the.kind")))
            if step == 6:
                seen.submit(lambda number: Watch(number, ()))
            train(model, optimizer)
            gradients[step] = model[2].weight.grad.detach().double().clone()
    assert [(step, each.parameter) for step, each in histograms(seen)] == [(3, 2), (4, 2), (5, 2)]
    for step, each in histograms(seen):
        check(each, gradients[step].numpy().ravel())
    assert len(seen.all(CommandApplied)) == 2
    assert not any("closely" in entry.text for entry in seen.state.log), "watching is no change of the run"


def test_one_step_is_examined_despite_thinning(
    set_reading_interval: Callable[[int], None],
) -> None:
    model = seeded_net()
    set_reading_interval(1_000)
    with watched(budget=1e-9) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(1, 400):
            if step == 300:
                seen.submit(lambda number: Watch(number, ("0.weight",)))
            train(model, optimizer)
    # After the first steps, which are sampled, no norms were read until then.
    assert not any(50 < step < 300 for step, _ in seen.totals())
    steps = [step for step, _ in histograms(seen)]
    # At the first boundary after it: the command may meet a step that is under way.
    assert steps[0] in (300, 301)
    ratios = [e for e in seen.all(GradientFiguresMeasured) if e.step == steps[0]]
    assert [figure.parameter for event in ratios for figure in event.figures] == [0]


def test_watched_parameter_is_measured_each_examined_step() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(60)))
    with watched(budget=1_000.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        train(model, optimizer)
        seen.submit(lambda number: Watch(number, ("59.weight",)))
        for _ in range(6):
            train(model, optimizer)
    looked: dict[int, list[int]] = {}
    for event in seen.all(GradientFiguresMeasured):
        looked.setdefault(event.step, []).extend(each.parameter for each in event.figures)
    assert all(118 in indices for step, indices in looked.items() if step > 1)
    assert set().union(*(set(indices) for indices in looked.values())) == set(range(120))
    history = seen.state.tree.ratios.of(118)
    assert [step for step in history.steps if step > 1] == list(range(2, 8))


def test_watching_changes_nothing() -> None:
    def weights(*, watch: bool) -> list[Tensor]:
        model = seeded_net()
        with watched(budget=1_000.0) as seen:
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            for step in range(6):
                if watch and step == 2:
                    seen.submit(lambda number: Watch(number, ("0.weight", "2.bias")))
                model(X + torch.randn_like(X)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        return [parameter.detach().clone() for parameter in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(weights(watch=False), weights(watch=True)))


def test_nothing_is_kept_alive() -> None:
    import weakref

    model = seeded_net()
    with watched(budget=1_000.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        train(model, optimizer)
        seen.submit(lambda number: Watch(number, ("0.weight",)))
        train(model, optimizer)
        gone = weakref.ref(model[0].weight.grad)
        assert histograms(seen)
        model[0].weight.grad = None
        assert gone() is None


def test_looks_behind_device_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived: list[bool] = []

    class Slow(HostCopy):
        @property
        def is_there(self) -> bool:
            return bool(arrived)

    monkeypatch.setattr(grad_histograms, "HostCopy", Slow)
    told: list[int] = []
    watching = GradHistograms(lambda step, _: told.append(step))
    watching._indices = frozenset({0})
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    room = grad_histograms._RING
    for step in range(room + 3):
        watching.before_step(step, [(0, parameter)], None)
    assert (told, watching.dropped) == ([], 3)
    arrived.append(True)
    watching.poll()
    # The oldest are those that arrive: were they given up, a script far ahead of its device would never see any.
    assert told == list(range(room))
