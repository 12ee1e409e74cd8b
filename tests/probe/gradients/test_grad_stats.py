"""More of a gradient than its norm: against the same figures computed in the script, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.summaries import summarised
from helpers.watched import Watched, watched
from torch import Tensor, nn

from gradtui.probe.gradients import grad_stats
from gradtui.probe.gradients.grad_stats import SAMPLE, GradStats
from gradtui.protocol.events import GradientFiguresMeasured, ProbeFailed
from gradtui.protocol.vocabulary import GradientStats

X = torch.linspace(-1, 1, 24).view(6, 4)


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def figures(seen: Watched) -> list[tuple[int, GradientStats]]:
    return [(event.step, each) for event in seen.all(GradientFiguresMeasured) for each in event.figures]


class Expected:
    """What a parameter's figures must be."""

    def __init__(self, parameter: Tensor) -> None:
        self.gradient = parameter.grad.detach().double().clone()
        self.before = parameter.detach().double().clone()

    def check(self, found: GradientStats, after: Tensor) -> None:
        g, w = self.gradient, self.before
        assert found.max_abs == pytest.approx(g.abs().max().item(), rel=1e-6)
        assert found.mean == pytest.approx(g.mean().item(), rel=1e-5, abs=1e-9)
        assert found.std == pytest.approx(g.std(correction=0).item(), rel=1e-5)
        assert found.zero_fraction == (g == 0).double().mean().item()
        assert found.not_finite == 0
        assert found.weight_norm == pytest.approx(w.norm().item(), rel=1e-6)
        ratio = ((after.detach().double() - w).norm() / w.norm()).item()
        assert found.update_ratio == pytest.approx(ratio, rel=1e-4)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_figures_are_of_what_optimizer_applied(make: type[torch.optim.Optimizer]) -> None:
    model = small()
    expected: dict[tuple[int, int], Expected] = {}
    after: dict[tuple[int, int], Tensor] = {}
    with watched(budget=1_000.0) as seen:
        optimizer = make(model.parameters(), lr=0.01)  # type: ignore[call-arg]
        for step in range(1, 5):
            optimizer.zero_grad()
            model(X).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            for index, parameter in enumerate(model.parameters()):
                expected[step, index] = Expected(parameter)
            optimizer.step()
            for index, parameter in enumerate(model.parameters()):
                after[step, index] = parameter.detach().clone()
    found = figures(seen)
    assert {(step, each.parameter) for step, each in found} >= {
        (step, index) for step in (1, 2, 3) for index in range(4)
    }
    for step, each in found:
        expected[step, each.parameter].check(each, after[step, each.parameter])
        assert each.ratio_is_exact
    assert any(each.zero_fraction > 0 for _, each in found), "a ReLU that never fires has a gradient of zeros"
    assert not seen.all(ProbeFailed)


def test_ratio_of_large_parameter_is_that_of_sample() -> None:
    torch.manual_seed(0)
    model = nn.Linear(300, 200)
    before = model.weight.detach().clone()
    with watched(budget=1_000.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(16, 300)).square().mean().backward()
        optimizer.step()
    (weight,) = [each for _, each in figures(seen) if each.parameter == 0]
    true = ((model.weight.detach() - before).norm() / before.norm()).item()
    assert not weight.ratio_is_exact
    assert weight.update_ratio == pytest.approx(true, rel=0.2)
    assert weight.update_ratio != true


def test_factor_of_grad_scaler_is_taken_out() -> None:
    model = small()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with watched(budget=1_000.0) as seen:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
        scaler.scale(model(X).square().mean()).backward()
        largest = [p.grad.abs().max().item() / 1024 for p in model.parameters()]
        scaler.step(optimizer)
        scaler.update()
    assert [each.max_abs for _, each in figures(seen)] == pytest.approx(largest, rel=1e-6)


def test_what_is_not_finite_is_counted() -> None:
    model = small()
    with watched(budget=1_000.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        model(X).square().mean().backward()
        model[0].weight.grad[0, :3] = torch.tensor([math.nan, math.inf, -math.inf])
        optimizer.step()
    weight = figures(seen)[0][1]
    assert weight.not_finite == 3
    assert math.isnan(weight.max_abs)
    assert figures(seen)[1][1].not_finite == 0


def test_parameters_take_turns() -> None:
    seen: list[tuple[int, ...]] = []
    statistics = GradStats(lambda step, found: seen.append(tuple(each.parameter for each in found)))
    parameters = [nn.Parameter(torch.ones(2)) for _ in range(300)]
    for parameter in parameters:
        parameter.grad = torch.ones(2)
    for step in range(-(-300 // grad_stats.MAX_PARAMETERS)):
        statistics.before_step(step, list(enumerate(parameters)), None, False)
        statistics.after_step()
    assert {len(found) for found in seen} == {grad_stats.MAX_PARAMETERS}
    assert set().union(*seen) == set(range(300))


def test_parameter_larger_than_limit_is_looked_at_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grad_stats, "MAX_ELEMENTS", 10)
    seen: list[list[int]] = []
    statistics = GradStats(lambda step, found: seen.append([each.parameter for each in found]))
    parameters = [nn.Parameter(torch.ones(size)) for size in (4, 40, 4, 4)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    for step in range(4):
        statistics.before_step(step, list(enumerate(parameters)), None, False)
        statistics.after_step()
    assert seen == [[0], [1], [2, 3], [0]]


ODD = {
    "scalar": nn.Parameter(torch.tensor(2.0)),
    "transposed": nn.Parameter(torch.arange(6.0).view(2, 3).T),
    "complex": nn.Parameter(torch.tensor([3 + 4j, 1j])),
    "bfloat16": nn.Parameter(torch.full((4,), 2.0, dtype=torch.bfloat16)),
    "float64": nn.Parameter(torch.full((4,), 2.0, dtype=torch.float64)),
    "one more than a sample": nn.Parameter(torch.full((SAMPLE + 1,), 2.0)),
    "zero": nn.Parameter(torch.zeros(3)),
}


def test_odd_parameters_are_looked_at_together() -> None:
    found: list[GradientStats] = []
    statistics = GradStats(lambda step, figures: found.extend(figures))
    for parameter in ODD.values():
        parameter.grad = torch.ones_like(parameter)
    statistics.before_step(1, list(enumerate(ODD.values())), None, False)
    with torch.no_grad():
        for parameter in ODD.values():
            parameter += parameter.abs() * 0.5 if parameter.is_complex() else parameter * 0.5
    statistics.after_step()
    ratios = dict(zip(ODD, (each.update_ratio for each in found)))
    assert ratios.pop("zero") is None
    assert ratios == dict.fromkeys(ratios, pytest.approx(0.5, rel=1e-6))


def test_a_sparse_gradients_other_elements_are_zeros() -> None:
    found: list[GradientStats] = []
    statistics = GradStats(lambda step, figures: found.extend(figures))
    parameter = nn.Parameter(torch.ones(10, 4))
    parameter.grad = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.ones(2, 4), (10, 4), check_invariants=True)
    empty = nn.Parameter(torch.ones(10, 4))
    empty.grad = torch.sparse_coo_tensor(torch.zeros(1, 0), torch.ones(0, 4), (10, 4), check_invariants=True)
    statistics.before_step(1, [(0, parameter), (1, empty)], None, False)
    statistics.after_step()
    (only,) = found
    assert (only.parameter, only.max_abs, only.zero_fraction) == (0, 2.0, 0.9)


def test_after_a_closure_there_is_no_ratio() -> None:
    model = small()
    with watched(budget=1_000.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = model(X).square().mean()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
    assert figures(seen)
    assert all(each.update_ratio is None for _, each in figures(seen))


def test_module_figures_combine_all_its_elements() -> None:
    model = nn.Sequential(small(), nn.Linear(2, 3))
    with watched(budget=1_000.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        model(X).square().mean().backward()
        parts = [list(model.parameters()), list(model[0].parameters())]
        gradients = [torch.cat([p.grad.double().flatten() for p in part]) for part in parts]
        before = [torch.cat([p.detach().double().flatten() for p in part]) for part in parts]
        optimizer.step()
        after = [torch.cat([p.detach().double().flatten() for p in part]) for part in parts]
    tree = seen.state.tree
    rows = {row["path"]: row["gradient"] for row in summarised(seen.state)["modules"]}
    assert summarised(seen.state)["gradient_norm"]["gradient"] == pytest.approx(rows[""])
    for path, g, w, moved in zip(("", "0"), gradients, before, after):
        row = rows[path]
        (module,) = [module for module in tree.modules if module.path == path]
        assert row["tensors"] == row["of"] == module.subtree_parameters
        assert row["max_abs"] == pytest.approx(g.abs().max().item(), rel=1e-6)
        assert row["mean"] == pytest.approx(g.mean().item(), rel=1e-5, abs=1e-8)
        assert row["std"] == pytest.approx(g.std(correction=0).item(), rel=1e-5)
        assert row["zero_fraction"] == pytest.approx((g == 0).double().mean().item())
        assert row["weight_norm"] == pytest.approx(w.norm().item(), rel=1e-6)
        assert row["update_ratio"] == pytest.approx(((moved - w).norm() / w.norm()).item(), rel=1e-4)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_small_parameters_have_same_figures_together_as_alone(
    kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small ones are looked at all at once: zeros, NaN and Inf in one of them are none of its neighbours'."""
    torch.manual_seed(0)
    sizes = [(3,), (40, 7), (1,), (grad_stats._SMALL,), (grad_stats._SMALL + 1,), (5, 2)]
    parameters = [nn.Parameter(torch.randn(size).to(kind)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape).to(kind)
    parameters[1].grad = torch.randn(7, 40).to(kind).t()
    parameters[0].grad[0], parameters[2].grad[0], parameters[5].grad[1, 1] = math.nan, 0.0, math.inf

    def figures_of(smallest: int) -> list[GradientStats]:
        monkeypatch.setattr(grad_stats, "_SMALL", smallest)
        found: list[GradientStats] = []
        statistics = GradStats(lambda _, figures: found.extend(figures))
        statistics.before_step(1, list(enumerate(parameters)), torch.tensor(4.0), has_run=False)
        statistics.after_step()
        return found

    together, alone = figures_of(grad_stats._SMALL), figures_of(0)
    assert [each.not_finite for each in together] == [1, 0, 0, 0, 0, 1]
    assert together[2].zero_fraction == 1
    tolerance = {"rel": 1e-4, "abs": 1e-6, "nan_ok": True}
    for one, other in zip(together, alone):
        assert one.zero_fraction == other.zero_fraction
        assert one.not_finite == other.not_finite
        assert one.update_ratio == other.update_ratio == 0
        for figure in ("max_abs", "mean", "std", "weight_norm"):
            assert getattr(one, figure) == pytest.approx(getattr(other, figure), **tolerance), figure
