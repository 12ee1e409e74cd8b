"""What holds more tensors with each step is named once memory grows, and so is what holds the graph of a past forward."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
import torch
from helpers.training import square_step
from helpers.watched import CountingAllocator, watched
from torch import Tensor, nn

from gradtui.protocol.events import GraphHolderFound, KeptTensors, KeptTensorsFound

pytestmark = pytest.mark.usefixtures("whole_searches")

STEPS = 36
ROWS, WIDTH = 256, 64
BYTES = ROWS * WIDTH * 4

Keep = Callable[[int, Tensor], object]


class Net(nn.Module):
    bank: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.kept: dict[object, object] = {}

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu())


def found(
    keep: Keep, model: Net | None = None, *, create_graph: bool = False, growth: int = 10 * BYTES
) -> list[KeptTensors]:
    """What is known at the end of a run in which memory grows, and `keep` gets the output of the first layer of each step."""
    model, allocator = model or Net(), CountingAllocator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watched(allocator=allocator) as seen:
        for step in range(STEPS):
            outputs: list[Tensor] = []
            handle = model.first.register_forward_hook(lambda *call: outputs.append(call[-1]))  # noqa: B023
            inputs = torch.randn(ROWS, WIDTH, requires_grad=create_graph)
            model(inputs).square().mean().backward(create_graph=create_graph)
            handle.remove()
            keep(step, outputs.pop())
            optimizer.step()
            for parameter in model.parameters():
                parameter.grad = None
            allocator.total += growth
            allocator.total += BYTES if "bank" in dict(model.named_buffers()) else 0
        events = seen.all(KeptTensorsFound)
    return list(events[-1].kept) if events else []


def test_a_list_that_a_function_keeps() -> None:
    def keeper() -> Keep:
        """Its variable is not one of an active function, whose variables are read from Python 3.13 on."""
        features: list[Tensor] = []
        return lambda _, output: features.append(output)

    (kept,) = found(keeper())
    assert kept.holder == "features of test_a_list_that_a_function_keeps.keeper.<lambda>()"
    assert (kept.with_graph, kept.per_step, kept.of_module) == (kept.tensors, 1.0, False)
    assert kept.bytes == kept.tensors * BYTES


def test_an_attribute_of_a_module() -> None:
    model = Net()
    (kept,) = found(lambda step, output: model.kept.update({step: (output.detach(), output.detach().clone())}), model)
    assert (kept.holder, kept.of_module, kept.with_graph, kept.per_step) == ("kept", True, 0, 2.0)


def test_a_buffer_that_grows() -> None:
    """Its bytes are in a category of their own: in none nothing grows."""
    model = Net()
    model.register_buffer("bank", torch.zeros(0, WIDTH))

    def extend(_: int, output: Tensor) -> None:
        model.bank = torch.cat([model.bank, output.detach()])

    (kept,) = found(extend, model, growth=0)
    assert (kept.holder, kept.of_module, kept.tensors, kept.per_step, kept.bytes_per_step) == (
        "bank",
        True,
        1,
        0,
        BYTES,
    )


def keep_few(model: Net) -> Keep:
    last: deque[Tensor] = deque(maxlen=100)
    model.kept["few"] = last
    return lambda _, output: last.append(output)


def fill_a_cache(model: Net) -> Keep:
    return lambda step, output: model.kept.update({step % 10: output})


def empty_at_times(model: Net) -> Keep:
    return lambda step, output: (model.kept.update({step: output}), step % 10 or model.kept.clear())


def keep_numbers(model: Net) -> Keep:
    return lambda step, output: model.kept.update({step: output.detach().mean()})


@pytest.mark.parametrize("how", [keep_few, fill_a_cache, empty_at_times, keep_numbers])
def test_what_does_not_grow(how: Callable[[Net], Keep]) -> None:
    model = Net()
    assert found(how(model), model) == []


# torch warns of the cycle.
@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
def test_gradients_with_graphs() -> None:
    """Those of the inputs: nothing removes them, and they refer to the inputs."""
    (kept,) = found(lambda *_: None, create_graph=True)
    assert (kept.holder, kept.per_step) == ("", 1.0)
    assert kept.bytes == kept.tensors * 2 * BYTES


def test_the_graph_of_an_evaluation() -> None:
    model, allocator = Net(), CountingAllocator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watched(allocator=allocator) as seen:
        for step in range(STEPS):
            if step == 4:
                model.eval()
                model.kept["plot"] = model(torch.randn(100 * ROWS, WIDTH))
                allocator.total += 200 * BYTES
                model.train()
            square_step(model, optimizer, torch.randn(ROWS, WIDTH))
        (holder,) = seen.all(GraphHolderFound)
    assert (holder.holder, holder.of_module, holder.forwards) == ("kept", True, 1)
    assert holder.bytes >= 100 * BYTES
