"""torch.compile, export and the tracers see the same program with and without the probe."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch
from helpers.programs import run_program
from helpers.training import TORCH, square_step, square_steps
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from gradtui.probe.model.discovery import Discovery
from gradtui.protocol.commands import SetTrainable, TraceGradient
from gradtui.protocol.events import CommandApplied, FreezeStateChanged, FreezeVerified, GradientPathFound

X = torch.linspace(-1, 1, 24).view(6, 4)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
    pytest.mark.versions,
]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.fc(self.norm(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = Block(), Block(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.first(x)))


Step = Callable[[Tensor], Tensor]


def compiled_model(model: Net, backend: Callable[..., object]) -> Step:
    return torch.compile(model, backend=backend)


def compiled_in_place(model: Net, backend: Callable[..., object]) -> Step:
    model.compile(backend=backend)
    return model


def compiled_function(model: Net, backend: Callable[..., object]) -> Step:
    return torch.compile(lambda x: model(x) * 2, backend=backend)


def compiled_blocks(model: Net, backend: Callable[..., object]) -> Step:
    for block in (model.first, model.second):
        block.compile(backend=backend)
    return model


def compiled_whole(model: Net, backend: Callable[..., object]) -> Step:
    return torch.compile(model, backend=backend, fullgraph=True)


STYLES = [compiled_model, compiled_in_place, compiled_function, compiled_blocks, compiled_whole]


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class BrokenNet(Net):
    """Has a graph break between its blocks."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.head(self.second(x))


def trained(
    style: Callable[..., Step], context: Callable[[], object], kind: type[Net] = Net
) -> tuple[dict[str, object], Watched | None]:
    """What dynamo made of a training of four steps, and the parameters it ended with."""
    from torch._dynamo.backends.debugging import aot_eager
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    graphs: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        graphs.append(len(list(graph.graph.nodes)))
        return aot_eager(graph, inputs)

    torch.manual_seed(0)
    model = kind()
    with context() as seen:
        step = style(model, backend)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        square_steps(step, optimizer, X, 4)
    facts = {
        "graphs": sorted(graphs),
        "breaks": dict(counters["graph_break"]),
        "frames": dict(counters["frames"]),
        "recompiles": dict(counters.get("recompiles", {})),
        "parameters": [parameter.tolist() for parameter in model.parameters()],
    }
    return facts, seen


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_the_same_graphs_and_breaks(style: Callable[..., Step]) -> None:
    alone, _ = trained(style, nullcontext)
    ours, seen = trained(style, watched)
    assert ours == alone
    assert alone["graphs"]
    assert (seen.state.step, seen.state.micro_steps) == (4, 4)
    assert len(seen.state.tree.parameters) == len(list(Net().parameters()))
    assert set(seen.letters().values()) == {"T"}
    assert all(norm is not None for norm in seen.norms().values())


@pytest.mark.parametrize("style", STYLES[:-1], ids=lambda style: style.__name__)
def test_graph_break_is_not_counted_twice(style: Callable[..., Step]) -> None:
    alone, _ = trained(style, nullcontext, BrokenNet)
    ours, seen = trained(style, watched, BrokenNet)
    assert ours == alone
    assert alone["breaks"] or style is compiled_blocks
    assert (seen.state.step, seen.state.micro_steps) == (4, 4)


def test_torch_still_tells_what_dynamo_would_compile() -> None:
    from gradtui.probe.torch_private import dynamo_frames

    assert dynamo_frames.what_compiles() is None
    seen: list[object] = []
    freed: list[int] = []

    def ask() -> None:
        seen.append(dynamo_frames.what_compiles())
        before = sys.getrefcount(seen[0])
        for _ in range(100):
            dynamo_frames.what_compiles()
        freed.append(before - sys.getrefcount(seen[0]))

    dynamo_frames.leave_to_python(ask)

    @torch.compile(backend="eager")
    def asking(x: Tensor) -> Tensor:
        ask()
        return x + 1

    asking(X)
    assert len(seen) == 1
    assert seen[0]
    assert freed == [0]


def test_compiled_function_that_also_calls_backward_and_step() -> None:
    from torch._dynamo.utils import counters

    def run() -> tuple[dict[str, object], Watched | None]:
        torch._dynamo.reset()
        counters.clear()
        graphs: list[int] = []

        def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
            graphs.append(len(list(graph.graph.nodes)))
            return graph.forward

        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Tensor) -> None:
            square_step(model, optimizer, x)

        compiled = torch.compile(step, backend=backend)
        for _ in range(3):
            compiled(X)
        return {"graphs": graphs, "parameters": [p.tolist() for p in model.parameters()]}, None

    alone, _ = run()
    with watched() as seen:
        ours, _ = run()
    assert ours["parameters"] == alone["parameters"]
    assert len(ours["graphs"]) == len(alone["graphs"])
    # The forward runs within a compiled region, where it is not to be seen.
    assert (seen.state.step, seen.state.micro_steps) == (3, 3)


def test_attaching_and_detaching_between_steps_recompiles_nothing() -> None:
    from torch._dynamo.utils import counters

    graphs: list[object] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        graphs.append(graph)
        return graph.forward

    model = Net()
    step = torch.compile(model, backend=backend)
    counters.clear()
    for round_ in range(6):
        with watched() if round_ % 2 else nullcontext():
            step(X).square().mean().backward()
    assert len(graphs) == 1
    assert not counters["graph_break"]


def test_compiled_optimizer_step_is_still_counted_and_unbroken() -> None:
    from torch._dynamo.utils import counters

    model = Net()
    with watched() as seen:
        optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
        compiled = torch.compile(optimizer.step, backend="eager")
        counters.clear()
        for _ in range(3):
            model(X).square().mean().backward()
            compiled()
            optimizer.zero_grad()
    assert (seen.state.step, seen.state.micro_steps) == (3, 3)
    assert not counters["graph_break"]


def test_frozen_parts_of_compiled_model_are_told() -> None:
    """A frozen weight that backward needs is flow-through; what cannot be told is not guessed."""
    model = Net()
    model.first.requires_grad_(False)
    model.second.fc.requires_grad_(False)
    step = torch.compile(model, backend="aot_eager")
    with watched() as seen:
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        for _ in range(3):
            step(X).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    letters = {path.removeprefix("_orig_mod."): letter for path, letter in seen.letters().items()}
    assert letters["second.fc.weight"] == letters["second.fc.bias"] == "F"
    assert letters["head.weight"] == letters["second.norm.weight"] == "T"
    assert letters["first.fc.weight"] in "C-"
    assert letters["first.norm.weight"] in "C-"


@pytest.mark.parametrize("strict", [True, False])
def test_export(strict: bool) -> None:
    model = Net()
    alone = torch.export.export(model, (X,), strict=strict)
    with watched():
        ours = torch.export.export(model, (X,), strict=strict)
    assert [node.target for node in ours.graph.nodes] == [node.target for node in alone.graph.nodes]


def test_symbolic_trace() -> None:
    model = Net()
    alone = torch.fx.symbolic_trace(model)
    with watched():
        ours = torch.fx.symbolic_trace(model)
        assert torch.equal(ours(X), model(X))
    assert ours.code == alone.code


def test_jit_script_and_trace() -> None:
    model = Net()
    with watched() as seen:
        scripted, traced = torch.jit.script(model), torch.jit.trace(model, X)
        for script in (scripted, traced):
            assert torch.equal(script(X), model(X))
        optimizer = torch.optim.SGD(scripted.parameters(), lr=0.1)
        for _ in range(3):
            scripted(X).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert (seen.state.step, seen.state.micro_steps) == (3, 3)
    assert set(seen.letters().values()) == {"T"}


def test_make_fx_and_vmap_over_an_ensemble() -> None:
    from torch.func import functional_call, stack_module_state, vmap
    from torch.fx.experimental.proxy_tensor import make_fx

    models = [Net() for _ in range(3)]
    base = Net().to("meta")

    def call(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(base, (parameters, buffers), (x,))

    def both() -> tuple[Tensor, str]:
        state = stack_module_state(models)
        return vmap(call, (0, 0, None))(*state, X), make_fx(models[0])(X).code

    alone = both()
    with watched():
        ours = both()
    assert torch.equal(ours[0], alone[0])
    assert ours[1] == alone[1]


IMPORT_ORDER = """
import sys
import torch
from torch import nn
from helpers.watched import watched

def train():
    graphs = []
    def backend(graph, inputs):
        graphs.append(len(list(graph.graph.nodes)))
        return graph.forward
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    step = torch.compile(model, backend=backend, fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        step(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    return graphs

assert "torch._dynamo.utils" not in sys.modules
with watched() as seen:
    within = train()
assert seen.state.step == 3, seen.state.step
torch._dynamo.reset()
after = train()
assert within == after and len(after) == 1, (within, after)
"""


@pytest.mark.slow
def test_dynamo_imported_while_a_probe_is_attached() -> None:
    """Dynamo remembers `nn.Module.__call__` as it is when it is first imported: under gradtui that is our wrapper."""
    run_program(IMPORT_ORDER, warnings="ignore")


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).tanh())


def compiled_normed(how: str) -> tuple[Normed, Callable[[Tensor], Tensor], CompileCounter]:
    counter = CompileCounter()
    model = Normed()
    if how == "in place":
        model.compile(backend=counter)
    run = {"model": lambda: torch.compile(model, backend=counter), "in place": lambda: model}.get(
        how, lambda: torch.compile(lambda x: model(x) * 1, backend=counter)
    )()
    return model, run, counter


def is_made_anew(how: str) -> bool:
    """Whether torch alone compiles again when the body is frozen and, where the module is called, its statistics are held."""
    model, run, counter = compiled_normed(how)
    for is_held in (False, True):
        model.body.requires_grad_(not is_held)
        model.body[1].train(not is_held or how == "function")
        run(X).sum().backward()
    torch._dynamo.reset()
    return counter.frame_count > 1


@pytest.mark.parametrize("how", ["model", "in place", "function"])
def test_freeze_names_recompilation_and_holds_statistics(how: str) -> None:
    if not is_made_anew(how):
        assert TORCH < (2, 13)
        pytest.skip("this torch does not compile it anew, with or without gradtui")
    model, run, counter = compiled_normed(how)
    frames = []
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(16):
            if number in (2, 8):
                seen.submit(lambda id_, trains=number == 8: SetTrainable(id_, "body", trains))
            model.train()
            square_step(run, optimizer, X)
            frames.append(counter.frame_count)
    torch._dynamo.reset()
    answers = [event.text for event in seen.all(CommandApplied)]
    tracked = int(model.body[1].num_batches_tracked)
    # Made anew once; the flags of before it has met.
    assert frames[1] < frames[4] == frames[15]
    if how != "function":
        assert tracked == 10
        note = (
            "torch.compile makes it anew" if TORCH >= (2, 13) else "torch.compile before torch 2.13 may not recompile"
        )
        assert all(note in answer for answer in answers)
        assert seen.all(FreezeVerified) == []
        return
    # No module is called: nobody can tell when it runs, and that is said at once.
    assert tracked == 16
    (moved,) = seen.all(FreezeVerified)
    assert moved.moved == ("body.1.num_batches_tracked",)
    assert moved.causes == ("written while forward or backward ran",)
    assert (moved.step, moved.steps) == (3, 1)
    assert [event.holding for event in seen.all(FreezeStateChanged)] == [(3,), (), ()]


def test_way_of_gradient_through_what_is_compiled() -> None:
    """A parameter is found behind the one node of the region; whether it passes a frozen one there cannot be told."""
    model = Net()
    model.second.requires_grad_(False)
    step = torch.compile(model, backend="aot_eager")
    with watched() as seen:
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        for path in ("first.fc.weight", "second.fc.weight"):
            seen.submit(lambda number, path=path: TraceGradient(number, path))  # type: ignore[misc]
        for _ in range(2):
            step(X).square().mean().backward()
            optimizer.step()
    first, second = seen.all(GradientPathFound)
    assert first.gradient.found
    assert any(hop.hidden for hop in first.gradient.hops)
    assert (second.gradient.found, second.gradient.hidden) == (False, True)


def test_compiled_graph_is_no_model_afterwards() -> None:
    discovery = Discovery()
    optimizer = torch.optim.Adam(Net().parameters(), lr=torch.tensor(0.01))
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    torch.compile(optimizer.step, backend="eager")()
    discovery.register_optimizer(optimizer)
    assert discovery.models() == []
    modules = [each for each in gc.get_objects() if type(each).__name__ == "GraphModule"]
    first = optimizer.param_groups[0]["params"][0]
    has_parameters = any(each is first for module in modules for each in module.parameters())
    if not has_parameters and TORCH < (2, 10):
        pytest.skip("this torch gives the parameters to the graph at each call")
    assert has_parameters
