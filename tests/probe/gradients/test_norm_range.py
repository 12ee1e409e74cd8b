"""Norms over the whole range of each dtype: none is zero unless every element is, and none is infinite unless one is."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.watched import Watched, watched
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from gradtui.probe.gradients import norm_range
from gradtui.probe.gradients.grad_norms import _PIECE, GradNorms, GradNormSample
from gradtui.probe.gradients.norm_range import exact_norm, is_doubtful, norm_by_magnitude, wide_norm

EXPONENTS = {
    torch.float16: (-24, 15),
    torch.bfloat16: (-133, 127),
    torch.float32: (-149, 127),
    torch.float64: (-1074, 1023),
}
"""Of two: those of the smallest subnormal number and of the largest power of two."""
DTYPES = [*EXPONENTS]
KINDS = [
    (dtype, exponent)
    for dtype, ends in EXPONENTS.items()
    for exponent in range(ends[0], ends[1] + 1, 1 + (ends[1] - ends[0]) // 40)
]
KINDS += [(dtype, ends[1]) for dtype, ends in EXPONENTS.items()]


def tolerance(dtype: torch.dtype) -> float:
    return 1e-3 if dtype in (torch.float16, torch.bfloat16) else 1e-5


def norm_of(tensor: Tensor) -> float:
    """As Python computes it from its own floats. It scales them, so that no square overflows or vanishes."""
    return math.hypot(*tensor.detach().double().flatten().tolist())


def measured(tensor: Tensor) -> float:
    """The norm that is measured of a gradient."""
    readings: list[GradNormSample] = []
    GradNorms(readings.append).measure(1, [(0, tensor)])
    ((_, found),) = readings[0].norms
    return found


def around(dtype: torch.dtype, exponent: int, size: int = 7) -> Tensor:
    """Numbers of about this size, some of them much smaller, that this dtype has."""
    generator = random.Random(exponent)
    numbers = [
        generator.uniform(-2, 2) * math.ldexp(1, exponent) / (1 << generator.choice((0, 1, 12))) for _ in range(size)
    ]
    tensor = torch.tensor(numbers, dtype=torch.float64).to(dtype)
    tensor[0] = math.ldexp(1, exponent)
    # The largest power of two, doubled, is none of its numbers.
    return tensor.nan_to_num(posinf=1.0, neginf=1.0)


@pytest.mark.parametrize(("dtype", "exponent"), KINDS)
def test_norm_is_right_whatever_size_of_elements(dtype: torch.dtype, exponent: int) -> None:
    tensor = around(dtype, exponent)
    expected = norm_of(tensor)
    assert expected > 0
    assert exact_norm(tensor, 0.0) == pytest.approx(expected, rel=tolerance(dtype), abs=0)
    assert measured(tensor) == pytest.approx(expected, rel=tolerance(dtype), abs=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_smallest_number_and_largest_have_their_norms(dtype: torch.dtype) -> None:
    smallest = math.ldexp(1, EXPONENTS[dtype][0])
    for number in (smallest, torch.finfo(dtype).tiny, torch.finfo(dtype).max, -smallest, torch.finfo(dtype).min):
        tensor = torch.tensor([0.0, number, 0.0], dtype=dtype)
        assert tensor[1] != 0
        assert exact_norm(tensor, 0.0) == pytest.approx(abs(float(tensor[1])), rel=1e-12, abs=0)
        assert measured(tensor) == pytest.approx(abs(float(tensor[1])), rel=1e-12, abs=0)


def test_norm_beyond_largest_number_of_double_is_infinite() -> None:
    tensor = torch.full((4,), torch.finfo(torch.float64).max, dtype=torch.float64)
    assert norm_of(tensor) == math.inf
    assert measured(tensor) == math.inf


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_is_exactly_zero(dtype: torch.dtype) -> None:
    for tensor in (torch.zeros(5, dtype=dtype), -torch.zeros(5, dtype=dtype), torch.zeros(1, dtype=dtype)):
        assert exact_norm(tensor, 0.0) == 0
        assert measured(tensor) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_stays_so(dtype: torch.dtype) -> None:
    small = math.ldexp(1, EXPONENTS[dtype][0])
    assert math.isnan(measured(torch.tensor([small, math.nan], dtype=dtype)))
    assert math.isnan(measured(torch.tensor([math.inf, math.nan], dtype=dtype)))
    assert measured(torch.tensor([small, -math.inf], dtype=dtype)) == math.inf
    assert exact_norm(torch.tensor([1.0, math.inf], dtype=dtype), math.inf) == math.inf
    assert math.isnan(exact_norm(torch.tensor([1.0, math.nan], dtype=dtype), math.nan))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("end", [0, 1], ids=["tiny", "huge"])
def test_large_tensor_has_norm_from_its_pieces(dtype: torch.dtype, end: int) -> None:
    """Also where only the piece with few elements that are not zero shows it."""
    number = math.ldexp(1, EXPONENTS[dtype][0] + 3) if end == 0 else math.ldexp(1, EXPONENTS[dtype][1] - 3)
    tensor = torch.zeros(3 * _PIECE + 5, dtype=dtype)
    tensor[[1, -1, -2, -3]] = number
    assert measured(tensor) == pytest.approx(2 * number, rel=tolerance(dtype), abs=0)
    assert measured(tensor[:-5].view(3, -1).t()) == pytest.approx(number, rel=tolerance(dtype), abs=0)


@given(
    numbers=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20),
)
def test_any_float32_numbers(numbers: list[float]) -> None:
    tensor = torch.tensor(numbers, dtype=torch.float32)
    assert measured(tensor) == pytest.approx(norm_of(tensor), rel=1e-5, abs=0)


# The norm of larger ones may round to infinity.
@given(numbers=st.lists(st.floats(-1e307, 1e307), min_size=1, max_size=20))
def test_any_float64_numbers(numbers: list[float]) -> None:
    tensor = torch.tensor(numbers, dtype=torch.float64)
    # Of the smallest subnormal numbers the norm has few digits.
    assert measured(tensor) == pytest.approx(norm_of(tensor), rel=1e-5, abs=1e-321)
    assert (measured(tensor) == 0) == (not tensor.any())


def test_wide_norms_are_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a piece of a large tensor is converted at a time."""
    monkeypatch.setattr(norm_range, "piece_bytes", lambda device, needed: 80)
    tensor = torch.linspace(1e-30, 2e-30, 105).view(15, 7).t()
    sizes: list[int] = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            if isinstance(found, Tensor) and found.dtype is torch.float64:
                sizes.append(found.numel())
            return found

    with Sizes():
        norm = wide_norm(tensor)
    assert max(sizes) <= 11  # as many norms of pieces
    assert float(norm) == pytest.approx(float(tensor.double().norm()), rel=1e-12)


@pytest.mark.parametrize("number", [0.0, 1e-44, 1e-38, 1e-20, 1.0, 1e30, math.inf, math.nan])
def test_norms_by_magnitude_need_no_double(number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norm_range, "piece_bytes", lambda device, needed: 80)
    tensor = torch.full((25,), number)
    tensor[3] = 0
    norm = norm_by_magnitude(tensor)
    assert norm.dtype is torch.float32
    assert float(norm) == pytest.approx(
        float(tensor.double().norm()), rel=1e-2 if number == 1e-44 else 1e-6, nan_ok=True
    )


def test_wide_norms_are_of_squares_in_double() -> None:
    tensor = torch.tensor([3e-30, 4e-30])
    assert wide_norm(tensor).dtype is torch.float64
    assert wide_norm(tensor).item() == pytest.approx(5e-30, rel=1e-6)
    assert wide_norm(torch.tensor([3e30, 4e30])).item() == pytest.approx(5e30, rel=1e-6)


@pytest.mark.parametrize(
    ("norms", "expected"),
    [
        ([], False),
        ([1.0, 1e-11, 3e38], False),
        ([1.0, 0.0], True),
        ([1e-13, 1.0], True),
        ([1.0, math.inf], True),
        ([math.nan, 1.0], False),
        ([math.nan, 0.0], True),
        ([0.0, math.nan], True),
        ([math.nan, math.inf], True),
        ([1.0, math.nan, math.inf], True),
    ],
)
def test_tiny_and_infinite_norms_are_doubtful(norms: list[float], expected: bool) -> None:
    assert is_doubtful(norms) == expected


def test_only_doubtful_norms_are_computed_again() -> None:
    """Beside a tiny one the others stay the float32 numbers that `clip_grad_norm_` would show."""
    torch.manual_seed(0)
    usual = torch.randn(1_000)
    readings: list[GradNormSample] = []
    GradNorms(readings.append).measure(1, [(0, usual), (1, torch.tensor([1e-30]))])
    found = dict(readings[0].norms)
    assert found[0] == torch.linalg.vector_norm(usual).item()
    assert found[1] == pytest.approx(1e-30, rel=1e-5)


def test_scale_divided_out_by_optimizer_is_divided_here() -> None:
    readings: list[GradNormSample] = []
    gradients = [(0, torch.tensor([3e-30, 4e-30])), (1, torch.tensor([3e30, 4e30])), (2, torch.tensor([3.0, 4.0]))]
    GradNorms(readings.append).measure(1, gradients, torch.tensor(1024.0))
    assert dict(readings[0].norms) == {
        0: pytest.approx(5e-30 / 1024, rel=1e-5), 1: pytest.approx(5e30 / 1024, rel=1e-5), 2: pytest.approx(5 / 1024)
    }  # fmt: skip


# Through a training.


class Product(nn.Module):
    """Each parameter's gradient is its factor."""

    def __init__(self, *factors: float) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in factors])
        self.factors = factors

    def forward(self) -> Tensor:
        return torch.stack([weight.sum() * factor for weight, factor in zip(self.weights, self.factors)]).sum()


@pytest.mark.parametrize("budget", [100.0, 0.01], ids=["sampled", "buffered"])
@pytest.mark.usefixtures("every_step_is_read")
def test_tiny_gradient_trains_and_only_zero_is_zero(budget: float) -> None:
    factors = (1e-30, 0.0, 1.0, 1e30, 1e-44)
    model = Product(*factors)
    with watched(budget=budget) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(20):
            optimizer.zero_grad()
            model().backward()
            optimizer.step()
    norms = [2 * float(torch.tensor(factor)) for factor in factors]
    assert [*seen.norms().values()] == pytest.approx(norms, rel=1e-5, abs=0)
    assert "".join(seen.letters().values()) == "TZTTT"
    assert [total for _, total in seen.totals()] == pytest.approx([math.hypot(*norms)] * 20, rel=1e-5)


def trained(
    model: nn.Module, batches: list[Tensor], loss: Callable[[Tensor], Tensor], *, clips: bool = False
) -> tuple[Watched, list[dict[str, float]]]:
    """A training with these batches, and the norm of each gradient as it was applied, computed from Python's floats."""
    expected: list[dict[str, float]] = []
    with watched(budget=0.01) as seen:
        # The weights stay as they are, also where the gradients are huge.
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for x in batches:
            optimizer.zero_grad()
            loss(model(x)).backward()
            if clips:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            expected.append({name: norm_of(p.grad) for name, p in model.named_parameters() if p.grad is not None})
            optimizer.step()
    return seen, expected


@pytest.mark.usefixtures("every_step_is_read")
def test_vanishing_gradients_are_not_zero_gradients() -> None:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(28):
        layers += [nn.Linear(8, 8), nn.Sigmoid()]
    model = nn.Sequential(*layers, nn.Linear(8, 1))
    for parameter in model.parameters():
        parameter.data *= 0.35
    seen, expected = trained(model, [torch.randn(16, 8) for _ in range(40)], lambda output: output.square().mean())
    # Their squares are beyond float32.
    assert 0 < min(expected[-1].values()) < 1e-22
    norms = seen.norms()
    assert norms == {name: pytest.approx(norm, rel=1e-5, abs=0) for name, norm in expected[-1].items()}
    assert {*seen.letters().values()} == {"T"}


@pytest.mark.usefixtures("every_step_is_read")
@pytest.mark.parametrize("clips", [False, True])
def test_outlier_has_finite_norm_unless_clipped_by_infinity(clips: bool) -> None:
    """torch computes an infinite norm in float32 and scales every gradient by its inverse, zero: this is what is applied."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    batches = [torch.randn(16, 8) for _ in range(30)]
    for x in batches[4::10]:
        x[0] *= 1e22
    seen, expected = trained(model, batches, lambda output: (output - 0.5).abs().mean(), clips=clips)
    outliers = {5, 15, 25}
    totals = dict(seen.totals())
    assert totals == {
        step: pytest.approx(math.hypot(*norms.values()), rel=1e-5) for step, norms in enumerate(expected, start=1)
    }
    assert all((1e18 < totals[step] < math.inf) != clips for step in outliers)
    before = {each.step: each.before_clipping for each in seen.figures()}
    if clips:
        # What the script's own call returned is told as it is.
        assert [step for step, total in totals.items() if total == 0] == sorted(outliers)
        assert {step for step, norm in before.items() if norm == math.inf} == outliers
    assert seen.state.bad_step is None
