"""What is counted of the script's operations in sampled steps, and that it changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.training import square_step
from helpers.watched import watched
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from gradtui.probe.memory import MemoryProfileSchedule
from gradtui.protocol.events import OperationsCounted
from gradtui.protocol.step_times import StepPart

STEPS = 6


@pytest.fixture(autouse=True)
def _no_step_is_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile receives the operations of its step, which are then not counted."""
    monkeypatch.setattr(MemoryProfileSchedule, "is_due", lambda *_, **__: False)


def modes() -> int:
    count: int = torch._C._len_torch_dispatch_stack()
    return count


def train(own_code: Callable[[torch.Tensor], object], model: nn.Module | None = None) -> torch.Tensor:
    """Train, with some code after each step. Return the weights, and the values drawn afterwards."""
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        own_code(loss.detach())
    return torch.cat([*(each.detach().flatten() for each in model.parameters()), torch.randn(4)])


def counted(own_code: Callable[[torch.Tensor], object], model: nn.Module | None = None) -> OperationsCounted | None:
    with watched() as seen:
        train(own_code, model)
    events = seen.all(OperationsCounted)
    return events[-1] if events else None


def part(event: OperationsCounted | None, which: StepPart) -> float:
    """The operations of a part in a step."""
    assert event is not None
    return next(each.operations for each in event.parts if each.part is which) / event.steps


def adding(times: int) -> Callable[[torch.Tensor], object]:
    return lambda loss: [loss.add_(1.0) for _ in range(times)]


def test_each_operation_of_own_code_counts_once() -> None:
    few, many = (counted(adding(times)) for times in (10, 30))
    assert part(many, StepPart.OTHER) - part(few, StepPart.OTHER) == 20
    assert part(many, StepPart.FORWARD) == part(few, StepPart.FORWARD) >= 3
    assert few is not None
    assert few.graph_operations / few.steps >= 6


def test_code_between_operations_counts_if_it_takes_long() -> None:
    def long(loss: torch.Tensor) -> None:
        for _ in range(3):
            loss.add_(1.0)
            sum(range(100_000))
        loss.add_(1.0)

    between = []
    for own_code in (adding(4), long):
        event = counted(own_code)
        assert event is not None
        assert event.calls == event.steps
        between.append(next(each.between_seconds for each in event.parts if each.part is StepPart.OTHER))
    assert between[1] - between[0] > 1e-3


@pytest.mark.parametrize(("acts", "reads"), [(True, 3), (False, 0)])
def test_read_of_result_is_told_from_index(acts: bool, reads: int) -> None:
    model, indices = nn.Linear(4, 1), torch.arange(3)

    def three(x: torch.Tensor) -> torch.Tensor:
        values = []
        for index in indices:
            values.append(model(x[index]))
            if acts:
                values[-1].detach().sign().item()
        return torch.stack(values)

    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched() as seen:
        for _ in range(STEPS):
            square_step(three, optimizer, torch.randn(8, 4))
    event = seen.all(OperationsCounted)[-1]
    assert (event.calls, event.reads_of_results) == (3 * event.steps, reads * event.steps)


def test_reads_have_the_line_of_the_script() -> None:
    event = counted(lambda loss: [loss.item(), float(loss)])
    assert event is not None
    assert sum(each.reads for each in event.parts) == 2 * event.steps
    (line,) = event.lines
    assert line.reads == 2 * event.steps
    assert line.line.file.endswith("test_operation_count.py")
    assert "loss.item(), float(loss)" in line.line.source
    assert line.waited_seconds == 0.0


def test_counted_training_has_bits_of_unwatched_one() -> None:
    own_code = adding(3)
    expected = train(own_code)
    with watched() as seen:
        found = train(own_code)
    assert seen.all(OperationsCounted)
    assert torch.equal(found, expected)


def test_mode_is_in_force_in_forward_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[int]] = {"forward": set(), "backward": set(), "step": set(), "own": set()}
    model = nn.Linear(4, 1)
    model.weight.register_hook(lambda _: seen["backward"].add(modes()))
    model.register_forward_hook(lambda *_: seen["forward"].add(modes()))
    torch.optim.Adam.step, original = (
        (lambda self: (seen["step"].add(modes()), original(self))[1]),
        torch.optim.Adam.step,
    )  # type: ignore[method-assign]
    try:
        counted(lambda _: seen["own"].add(modes()), model)
    finally:
        torch.optim.Adam.step = original  # type: ignore[method-assign]
    assert seen == {"forward": {0, 1}, "backward": {0}, "step": {0}, "own": {0, 1}}
    assert modes() == 0


def test_writes_to_tensor_lists_raise_versions() -> None:
    """Autograd's check of in-place changes relies on them."""

    def raised(loss: torch.Tensor) -> None:
        tensors = [torch.ones(2), torch.ones(2)]
        torch._foreach_mul_(tensors, 2.0)
        torch._foreach_clamp_max_(tensors, 1.5)
        versions.append([each._version for each in tensors])

    versions: list[list[int]] = []
    train(raised)
    expected, versions = versions[0], []
    counted(raised)
    assert versions == [expected] * STEPS


class Other(TorchDispatchMode):
    """A mode of the script."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


def test_mode_spanning_steps_stays_in_place() -> None:
    mine: list[Other] = []
    depths = []

    def own_code(loss: torch.Tensor) -> None:
        if mine:
            mine.pop().__exit__(None, None, None)
        else:
            mine.append(Other())
            mine[0].__enter__()
            assert torch.utils._python_dispatch._get_current_dispatch_mode() is mine[0]
        loss.add_(1.0)
        depths.append(modes())

    counted(own_code)
    assert modes() == 0
    assert max(depths) <= 2


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]


def test_a_checkpointed_forward_is_not_counted() -> None:
    assert counted(adding(1), Checkpointed()) is None


def test_recurrent_module_is_no_loop_of_script() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.GRU(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)[0]  # type: ignore[no-any-return]

    assert part(counted(adding(1), Recurrent()), StepPart.FORWARD) < 20
