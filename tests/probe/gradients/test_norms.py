"""Gradient norms and losses against references computed in the script itself, and gradients of every odd kind."""

from __future__ import annotations

import math
import sys
from typing import ClassVar

import pytest
import torch
from helpers.operations import CountedOperations
from helpers.training import seeded_net, square_steps
from helpers.watched import Watched, watched
from torch import Tensor, nn
from zoo import SPECIMENS

from gradtui.probe.gradients import grad_norms, grad_stats, latest_norms
from gradtui.probe.gradients.clipping import Clipping
from gradtui.probe.gradients.grad_norms import _PIECE, GradNorms, GradNormSample
from gradtui.probe.runtime import RunClock
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.protocol.commands import FollowMicroSteps
from gradtui.protocol.events import GradientsMeasured, MicroStepMeasured, OptimizersFound, StepsMeasured
from gradtui.protocol.vocabulary import OptimizerInfo

X = torch.linspace(-1, 1, 24).view(6, 4)


def norm(gradient: Tensor) -> float:
    """In float64, whatever the gradient is."""
    dense = gradient.coalesce().values() if gradient.is_sparse else gradient
    wide = torch.complex128 if dense.is_complex() else torch.float64
    return float(torch.linalg.vector_norm(dense.detach().to(wide)))


class Reference:
    """What a script would write down itself, step by step."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.rows: list[dict[str, float | None]] = []
        self.losses: list[float] = []

    def note(self, loss: Tensor, scale: float = 1.0) -> None:
        self.rows.append(
            {
                name: norm(p.grad) / scale if p.grad is not None and p.grad.numel() else None
                for name, p in self.model.named_parameters()
            }
        )
        self.losses.append(float(loss.detach()))

    def check(self, seen: Watched, indices: list[int] | None = None) -> None:
        measured = seen.all(GradientsMeasured)
        paths = [info.path for info in seen.state.tree.parameters]
        assert len(measured) == len(self.rows)
        for event, row, loss in zip(measured, self.rows, self.losses):
            assert event.norms is not None
            for path, ours in zip(paths, event.norms):
                theirs = row[path]
                assert (ours is None) == (theirs is None), path
                if theirs is not None:
                    assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-30), path
            total = math.hypot(*(value for value in row.values() if value is not None))
            assert event.total == pytest.approx(total, rel=1e-5)
            assert event.loss == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("name", [name for name in SPECIMENS if name != "lazy"])
def test_a_plain_loop_over_the_zoo(name: str) -> None:
    specimen = SPECIMENS[name]()
    reference = Reference(specimen.model)
    with watched() as seen:
        optimizer = torch.optim.SGD(specimen.model.parameters(), lr=0.01)
        for step in range(3):
            optimizer.zero_grad()
            loss = specimen.loss(specimen.model(*specimen.batch(step)))
            loss.backward()
            reference.note(loss)
            optimizer.step()
    reference.check(seen)


def before_clipping(seen: Watched) -> list[tuple[float | None, float | None]]:
    return [
        (event.before_clipping, event.clipped_at) for event in seen.all(GradientsMeasured) if event.total is not None
    ]


def test_other_norms_and_calls_are_no_total() -> None:
    model = seeded_net()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(2):
            optimizer.zero_grad()
            model(X).square().mean().backward()
            if number == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 0.01, norm_type=float("inf"))
            else:
                for parameter in model.parameters():
                    nn.utils.clip_grad_norm_(parameter, 0.01)
            optimizer.step()
    assert before_clipping(seen) == [(None, None), (None, None)]


def test_device_norm_before_clipping_is_not_awaited() -> None:
    """The norms of gradients on the CPU are read at once."""
    model = seeded_net()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(X).square().mean().backward()
        # The number of a tensor on `meta` cannot be read.
        seen.probe.norms.clippings.record(torch.ones((), device="meta"), 1.0, 2.0)
        optimizer.step()
    assert len(seen.totals()) == 1
    assert before_clipping(seen) == [(None, None)]


def test_norm_before_clipping_is_without_scale() -> None:
    """A script that forgets `unscale_` clips what is 512 times too large: so it is applied, and so it is told."""
    model = seeded_net()
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    with watched() as seen:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
        scaler.scale(model(X).square().mean()).backward()
        total = nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        scaler.step(optimizer)
        scaler.update()
    (told,) = before_clipping(seen)
    assert told == (pytest.approx(total / 512, rel=1e-6), 1.0)


def test_clipping_functions_are_restored_under_both_names() -> None:
    original = nn.utils.clip_grad_norm_
    with watched():
        assert nn.utils.clip_grad_norm_ is nn.utils.clip_grad.clip_grad_norm_
        assert nn.utils.clip_grad_norm_ is not original
        weight = nn.Parameter(torch.ones(1))
        weight.grad = torch.tensor([float("inf")])
        with pytest.raises(RuntimeError, match="non-finite") as raised:
            nn.utils.clip_grad_norm_(weight, 1.0, error_if_nonfinite=True)
        # Python 3.10 keeps the entry of the wrapper that raises again: see `strip_own_frames`.
        below = raised.traceback[1 if sys.version_info >= (3, 11) else 2 :]
        assert "gradtui" not in "".join(str(frame.path) for frame in below)
    assert nn.utils.clip_grad_norm_ is original


def test_skipped_step_is_told_with_its_infinite_norm() -> None:
    model = seeded_net()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            scaler.scale(model(X).square().mean() * (math.inf if step == 1 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
    totals = [(event.step, event.total) for event in seen.all(GradientsMeasured)]
    assert [step for step, _ in totals] == [1, 1, 2]
    assert [total is not None and math.isfinite(total) for _, total in totals] == [True, False, True]
    assert seen.state.norm_summary.not_finite_steps == 1


def test_two_scalers_have_their_own_factors() -> None:
    model = seeded_net()
    ones, twos = (torch.amp.GradScaler("cpu", init_scale=scale) for scale in (8.0, 1024.0))
    losses = []
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for scaler in (ones, twos, None):
            optimizer.zero_grad()
            loss = model(X).square().mean()
            losses.append(loss.item())
            (loss if scaler is None else scaler.scale(loss)).backward()
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()
    assert [event.loss for event in seen.all(GradientsMeasured)] == pytest.approx(losses)


def test_parameters_of_other_optimizers_keep_their_last_norm() -> None:
    first, second = seeded_net(), seeded_net()
    both = nn.ModuleList([first, second])
    with watched() as seen:
        one, two = torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.SGD(second.parameters(), lr=0.1)
        for _ in range(2):
            first(X).square().mean().backward()
            one.step()
            one.zero_grad()
            second(X).square().mean().backward()
            two.step()
            two.zero_grad()
    assert len(list(both.parameters())) == 8
    rows = [event.norms for event in seen.all(GradientsMeasured)]
    assert all(row is not None for row in rows)
    known = [[value is not None for value in row or ()] for row in rows]
    assert known == [[True] * 4 + [False] * 4, *[[True] * 8] * 3]
    assert rows[0][:4] == rows[1][:4]
    assert rows[1][4:] == rows[2][4:]


def test_a_gradient_that_goes_is_no_longer_told() -> None:
    model = seeded_net()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            optimizer.zero_grad()
            model(X).square().mean().backward()
            if step == 1:
                model[0].weight.grad = None
            optimizer.step()
    rows = [event.norms for event in seen.all(GradientsMeasured)]
    assert rows[0][0] is not None
    assert rows[1][0] is None
    assert seen.letters()["0.weight"] == "U"


def test_several_losses_at_once_tell_the_first() -> None:
    model = seeded_net()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        output = model(X)
        losses = [output.square().mean(), output.abs().mean()]
        torch.autograd.backward(losses)
        optimizer.step()
    assert seen.state.loss.last == pytest.approx(losses[0].item())


def meter() -> tuple[GradNorms, list[GradNormSample]]:
    readings: list[GradNormSample] = []
    return GradNorms(readings.append), readings


def sparse(*, values: Tensor, rows: list[int]) -> Tensor:
    return torch.sparse_coo_tensor(torch.tensor([rows]), values, (10, values.shape[1]), check_invariants=True)


ODD: dict[str, tuple[Tensor, float]] = {
    "repeated sparse rows": (sparse(values=torch.ones(3, 4), rows=[1, 1, 2]), math.sqrt(4 * 4 + 4)),
    "no sparse rows": (sparse(values=torch.zeros(0, 4), rows=[]), 0.0),
    "complex": (torch.tensor([3 + 4j, 0j]), 5.0),
    "conjugated complex": (torch.tensor([3 + 4j, 0j]).conj(), 5.0),
    "large conjugated complex": (torch.full((_PIECE,), 3 + 4j).conj(), 5.0 * math.sqrt(_PIECE)),
    "scalar": (torch.tensor(-2.0), 2.0),
    "transposed": (torch.ones(300, 400).T, math.sqrt(120_000)),
    "strided": (torch.ones(400, 400)[:, ::2], math.sqrt(80_000)),
    "expanded": (torch.ones(1, 1).expand(300, 400), math.sqrt(120_000)),
    "channels last": (torch.ones(2, 64, 32, 32).contiguous(memory_format=torch.channels_last), math.sqrt(131_072)),
    "float64": (torch.full((4,), 1e100, dtype=torch.float64), 2e100),
    "half beyond its range": (torch.full((10_000,), 1000.0, dtype=torch.float16), 1e5),
    "bfloat16": (torch.full((4,), 2.0, dtype=torch.bfloat16), 4.0),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_gradients(name: str) -> None:
    gradient, expected = ODD[name]
    measuring, readings = meter()
    measuring.measure(3, [(7, gradient)])
    (reading,) = readings
    assert reading.step == 3
    assert reading.norms == [(7, pytest.approx(expected, rel=1e-5))]
    assert reading.total == pytest.approx(expected, rel=1e-5)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_a_compressed_sparse_gradient() -> None:
    measuring, readings = meter()
    measuring.measure(1, [(0, torch.eye(3).to_sparse_csr())])
    assert readings[0].total == pytest.approx(math.sqrt(3))


def test_norms_of_mixed_kinds_stay_with_their_parameters() -> None:
    kinds = [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.float16]
    gradients = [(index, torch.full((index + 1,), 2.0).to(kinds[index % 5])) for index in range(20)]
    gradients.append((20, torch.full((_PIECE + 1,), 1.0)))
    measuring, readings = meter()
    assert measuring.measure(1, gradients)
    (reading,) = readings
    assert dict(reading.norms) == {
        index: pytest.approx(norm(gradient), rel=1e-3 if gradient.dtype in (torch.bfloat16, torch.float16) else 1e-6)
        for index, gradient in gradients
    }


def test_one_multi_tensor_norm_per_type() -> None:
    counts = []
    for many in (10, 100):
        gradients = [torch.ones(3, dtype=(torch.float32, torch.float64)[index % 2]) for index in range(many)]
        measuring, readings = meter()
        with CountedOperations() as operations:
            measuring.measure(1, list(enumerate(gradients)))
        assert readings[0].total == pytest.approx(math.sqrt(3 * many))
        counts.append(operations.counts)
    assert counts[0] == counts[1]
    assert counts[0]["_foreach_norm"] == 2


@pytest.mark.parametrize(
    ("values", "total"), [([math.nan, 1.0], math.nan), ([math.inf, 1.0], math.inf), ([math.inf, math.nan], math.nan)]
)
def test_what_is_not_finite_is_told_as_such(values: list[float], total: float) -> None:
    measuring, readings = meter()
    assert measuring.measure(1, [(index, torch.tensor([value])) for index, value in enumerate(values)])
    (reading,) = readings
    assert reading.total == pytest.approx(total, nan_ok=True)
    assert dict(reading.norms) == pytest.approx(dict(enumerate(values)), nan_ok=True)


def test_nothing_to_measure_is_no_reading() -> None:
    measuring, readings = meter()
    assert not measuring.measure(1, [])
    assert readings == []
    # Without gradients the script may have clipped all the same.
    assert measuring.measure(1, [], None, Clipping(torch.tensor(2.0), 1.0))
    assert readings == [GradNormSample(1, None, None, [], 2.0, 1.0)]
    measuring.poll()
    measuring.finish()
    assert len(readings) == 1


class SlowCopy(HostCopy):
    """A device that has finished only what it is said to have finished."""

    finished = 0
    made: ClassVar[list[SlowCopy]] = []

    def __init__(self, values: Tensor) -> None:
        super().__init__(values.clone())
        self.made.append(self)

    @property
    def is_there(self) -> bool:
        return self.made.index(self) < self.finished

    def wait(self) -> None:
        type(self).finished = len(self.made)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, as_on_a_device: None) -> type[SlowCopy]:
    monkeypatch.setattr(SlowCopy, "finished", 0)
    monkeypatch.setattr(SlowCopy, "made", [])
    monkeypatch.setattr(grad_norms, "HostCopy", SlowCopy)
    monkeypatch.setattr(grad_stats, "HostCopy", SlowCopy)
    return SlowCopy


def test_steps_behind_device_are_left_out(slow: type[SlowCopy]) -> None:
    """A script 1,000 steps ahead of its device for good still sees a curve."""
    measuring, readings = meter()
    for step in range(1, 101):
        slow.finished = step // 20  # One reading in the time of 20 steps.
        measuring.measure(step, [(0, torch.tensor([float(step)]))])
    assert [reading.total for reading in readings] == [float(reading.step) for reading in readings]
    assert len(readings) == 5
    assert len(slow.made) + measuring.dropped == 100
    assert len(slow.made) - len(readings) <= grad_norms._RING
    measuring.finish()
    assert len(readings) == len(slow.made)


def test_lag_of_device_is_counted_over_run(slow: type[SlowCopy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grad_norms, "_RING", 8)
    model = seeded_net()
    with watched() as seen:
        seen.submit(lambda number: FollowMicroSteps(number, True))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        square_steps(model, optimizer, X, 15)
        assert seen.all(GradientsMeasured) == []
    left_out = 15 - grad_norms._RING
    # Norms and micro-steps are read at every step; of the figures both copies of a look have to arrive.
    assert seen.probe.norms._meter.dropped == seen.probe.norms.micro_steps.dropped == left_out
    assert seen.state.cost.readings_late == seen.probe.norms.dropped >= 2 * left_out
    assert len([event for event in seen.all(GradientsMeasured) if event.total is not None]) == grad_norms._RING
    assert [(event.step, event.number) for event in seen.all(MicroStepMeasured)] == [
        (step, 1) for step in range(1, grad_norms._RING + 1)
    ]


LARGE = [(dtype, 1 << 22) for dtype in (torch.float32, torch.float16, torch.bfloat16)]


HUGE = [
    pytest.param(dtype, 1 << 27, marks=pytest.mark.slow) for dtype in (torch.float32, torch.float16, torch.bfloat16)
]


@pytest.mark.parametrize(("dtype", "size"), [*LARGE, *HUGE])
def test_large_gradients_are_as_exact_as_small_ones(dtype: torch.dtype, size: int) -> None:
    """In one go the CPU kernel is 1.4 % off at 134 million elements, in half precision 20 %."""
    # In pieces: at most half a gigabyte is held at a time, beside some megabytes.
    gradient, generator = torch.empty(size, dtype=dtype), torch.Generator().manual_seed(0)
    for part in gradient.split(1 << 20):
        part.copy_(torch.empty(part.numel()).uniform_(-1, 1, generator=generator))
    exact = math.sqrt(math.fsum(float(part.double().square().sum()) for part in gradient.split(1 << 20)))
    measuring, readings = meter()
    measuring.measure(1, [(0, gradient)])
    assert readings[0].total == pytest.approx(exact, rel=1e-5)


def test_measuring_writes_nothing_and_draws_nothing() -> None:
    model = seeded_net()
    model(X).square().mean().backward()
    gradients = [(index, p.grad) for index, p in enumerate(model.parameters()) if p.grad is not None]
    versions, state = [gradient._version for _, gradient in gradients], torch.get_rng_state()
    meter()[0].measure(1, gradients)
    assert [gradient._version for _, gradient in gradients] == versions
    assert torch.equal(torch.get_rng_state(), state)


def test_rows_come_seldom_and_totals_always() -> None:
    model = seeded_net()
    with watched() as seen:
        # After the first samples only time makes rows due, and it stands still.
        seen.probe.norms.latest._clock = StoppedClock(seen.probe.clock)  # type: ignore[assignment]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        square_steps(model, optimizer, X, 100)
    assert [step for step, _ in seen.totals()] == list(range(1, 101))
    measured = seen.all(GradientsMeasured)
    assert all(event.norms is not None for event in measured)
    assert [event.step for event in measured if event.total is not None] == list(range(1, 33))
    assert [figures.step for event in seen.all(StepsMeasured) for figures in event.figures] == list(range(33, 101))
    # What was held back last is sent at the end.
    assert (measured[-1].step, measured[-1].total) == (100, None)
    assert seen.state.tree.norms_step == 100


class StoppedClock:
    """A run's clock whose `now` does not go on."""

    def __init__(self, clock: RunClock) -> None:
        self.at, self._now = clock.at, clock.now()

    def now(self) -> int:
        return self._now


def test_unknown_parameters_have_total_without_rows() -> None:
    weight = torch.ones(4, 2, requires_grad=True)
    with watched() as seen:
        optimizer = torch.optim.SGD([weight], lr=0.1)
        (X @ weight).sum().backward()
        assert weight.grad is not None
        expected = norm(weight.grad)
        optimizer.step()
    (event,) = seen.all(GradientsMeasured)
    assert (event.total, event.norms) == (pytest.approx(expected, rel=1e-6), ())
    assert seen.all(OptimizersFound)[-1].optimizers == (OptimizerInfo("SGD", 1, (), 1),)


def test_parameters_of_first_nan_are_always_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest_norms, "_ROWS_NS", 10**15)
    model = nn.Linear(3, 2)
    with watched(budget=1_000.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for step in range(60):
            optimizer.zero_grad()
            (model(torch.ones(1, 3)).sum() * (math.nan if step >= 50 else 1.0)).backward()
            optimizer.step()
    assert [step for step, total in seen.totals() if math.isnan(total)] == list(range(51, 61))
    broken = [event.step for event in seen.all(GradientsMeasured) if event.total is not None and event.step > 32]
    assert broken == [51]


def test_norms_of_two_optimizers_are_of_two_steps() -> None:
    """Each parameter keeps the norm of its own optimizer's last step, and the data say which step that is."""
    first, second = nn.Linear(3, 2), nn.Linear(2, 1)
    with watched() as seen:
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (first, second)]
        for number in range(6):
            for optimizer in optimizers:
                optimizer.zero_grad()
            second(first(torch.ones(1, 3))).sum().backward()
            optimizers[number % 2].step()
    tree = seen.state.tree
    assert tree.norms_step == 6
    of_each = {id(p): step for model, step in ((first, 5), (second, 6)) for p in model.parameters()}
    expected = [of_each[id(p)] for _, p in seen.probe.view.tree.live_parameters()]
    assert tree.norm_steps is not None
    assert list(tree.norm_steps) == expected
    assert seen.all(GradientsMeasured)[0].norm_steps is None


def test_only_doubtful_device_norms_get_whole_range(slow: type[SlowCopy]) -> None:
    """In the first step of LoRA every second gradient is zero, and in no other."""
    measuring, readings = meter()
    for step, number in enumerate((0.0, 1.0, 1.0), start=1):
        measuring.measure(step, [(0, torch.ones(4)), (1, torch.full((4,), number))])
        slow.finished = step
        measuring.poll()
        assert measuring._wide == ({1} if step == 1 else set())
    # A tiny norm of a first reading is unknown.
    assert [dict(reading.norms) for reading in readings] == [{0: 2.0}, {0: 2.0, 1: 2.0}, {0: 2.0, 1: 2.0}]
