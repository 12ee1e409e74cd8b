"""The way of a gradient through the graph, against the architecture, tensor hooks, and a count by recursion."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from itertools import groupby

import pytest
import torch
from helpers import loops
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from zoo import SPECIMENS
from zoo.attention import WIDTH

from gradtui.probe.autograd.gradient_path import Target, find_gradient_path
from gradtui.probe.autograd.module_call_log import ModuleCallLog
from gradtui.probe.model.tree_builder import build
from gradtui.protocol.commands import TraceGradient
from gradtui.protocol.events import CommandRejected, GradientPathFound, OptimizersFound, OptimizerStateRead
from gradtui.protocol.vocabulary import MAX_PATHS, GradientHop

X = torch.linspace(-1, 1, 24).view(6, 4)
OUT = "(outside)"


def ask(seen: Watched, path: str) -> None:
    seen.submit(lambda number: TraceGradient(number, path))


def told(seen: Watched) -> GradientPathFound:
    (chain,) = seen.all(GradientPathFound)
    return chain


def modules(seen: Watched, hops: tuple[GradientHop, ...]) -> list[str]:
    return [seen.state.tree.modules[hop.module].path if hop.module >= 0 else OUT for hop in hops]


def traced(
    model: nn.Module, path: str, loss: Callable[[], Tensor], steps: int = 2
) -> tuple[Watched, GradientPathFound]:
    """What is told of `path` while `model` trains on `loss`."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with watched() as seen:
        ask(seen, path)
        optimizer = torch.optim.SGD(trained, lr=0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            loss().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return seen, told(seen)


def of_zoo(name: str, path: str) -> tuple[Watched, GradientPathFound]:
    specimen = SPECIMENS[name]()
    return traced(specimen.model, path, lambda: specimen.loss(specimen.model(*specimen.batch(0))))


def by_recursion(loss: Tensor, leaf: Tensor) -> tuple[int, int]:
    """(paths, fewest operations) from a loss to a leaf: by the definition of both, with every node met once."""
    known: dict[object, tuple[int, int]] = {}

    def count(node: object) -> tuple[int, int]:
        if getattr(node, "variable", None) is leaf:
            return 1, 0
        if node not in known:
            found = [count(each) for each, _ in node.next_functions if each is not None]  # type: ignore[attr-defined]
            reached = [each for each in found if each[0]]
            known[node] = (sum(n for n, _ in reached), 1 + min(n for _, n in reached)) if reached else (0, 0)
        return known[node]

    return count(loss.grad_fn)


@pytest.mark.parametrize("name", [name for name in SPECIMENS if name != "lazy"])
def test_every_parameter_of_the_zoo(name: str) -> None:
    """Found exactly where backward stores a gradient, on a shortest path, with all paths counted."""
    specimen, reference = SPECIMENS[name](), SPECIMENS[name]()
    value = reference.loss(reference.model(*reference.batch(0)))
    trained = {path: tensor for path, tensor in reference.model.named_parameters() if tensor.requires_grad}
    expected = {path: by_recursion(value, tensor) for path, tensor in trained.items()}
    some = list(trained)[:12]
    with watched() as seen:
        for path in some:
            ask(seen, path)
            loops.plain(specimen.model, specimen.batch, specimen.loss, 1)
            # Optimizers of before that nobody has collected yet would make a round of several steps.
            gc.collect()
    value.backward()  # type: ignore[no-untyped-call]
    chains = {chain.path: chain for chain in seen.all(GradientPathFound)}
    assert list(chains) == some
    for path, chain in chains.items():
        paths, operations = expected[path]
        assert chain.gradient.found == (trained[path].grad is not None)
        assert chain.gradient.path_count == min(MAX_PATHS, paths)
        if chain.gradient.found:
            assert sum(hop.operations for hop in chain.gradient.hops) == operations


def test_it_flows_through_the_frozen_encoder() -> None:
    seen, chain = of_zoo("frozen_encoder_with_prompt", "prompt")
    assert chain.gradient.found
    # Of each block the two residual additions; of the model itself what is before and after the encoder.
    assert modules(seen, chain.gradient.hops) == [OUT, "", "text_encoder.1", "text_encoder.0", ""]
    assert [hop.operations for hop in chain.gradient.hops[2:4]] == [2, 2]
    assert chain.gradient.hops[2].names == ("AddBackward0",)
    # In each block: past attention or through its q, k or v, then past the MLP or through it.
    assert chain.gradient.path_count == ((1 + 3) * (1 + 1)) ** 2
    assert (chain.gradient.use_count, chain.gradient.upstream) == (1, chain.parameter)


def test_through_frozen_parameter_it_goes_on_to_prompt() -> None:
    seen, chain = of_zoo("frozen_encoder_with_prompt", "text_encoder.0.mlp.0.weight")
    assert chain.gradient.found
    assert modules(seen, chain.gradient.hops)[-3:] == [
        "text_encoder.0.mlp.2",
        "text_encoder.0.mlp.1",
        "text_encoder.0.mlp.0",
    ]
    assert modules(seen, chain.gradient.onward) == ["text_encoder.0.mlp.0", "text_encoder.0.ln_2", "text_encoder.0", ""]
    assert seen.state.tree.parameters[chain.gradient.upstream].path == "prompt"


def test_a_module_is_come_to_and_passed() -> None:
    seen, chain = of_zoo("frozen_encoder_with_prompt", "text_encoder")
    assert (chain.gradient.found, chain.parameter) == (True, -1)
    assert modules(seen, chain.gradient.hops) == [OUT, "", "text_encoder.1"]
    assert modules(seen, chain.gradient.onward) == ["text_encoder.1", "text_encoder.0", ""]
    assert seen.state.tree.parameters[chain.gradient.upstream].path == "prompt"


def test_sequence_is_order_of_tensor_hooks() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    called: list[str] = []

    def listen(path: str) -> Callable[[nn.Module, object, Tensor], None]:
        return lambda module, inputs, output: output.register_hook(lambda _: called.append(path)) and None

    for path, module in model.named_children():
        module.register_forward_hook(listen(path))
    seen, chain = traced(model, "0.weight", lambda: model(X).square().mean(), steps=1)
    # A hook's own node of the graph there is none: the order is that in which backward comes to the modules' outputs.
    assert modules(seen, chain.gradient.hops) == [OUT, *called]
    assert called == ["4", "3", "2", "1", "0"]


def test_a_shared_tensor_is_taken_twice() -> None:
    seen, chain = of_zoo("tied_gpt", "tok_emb.weight")
    assert chain.gradient.use_count == 2
    assert modules(seen, chain.gradient.hops)[-1] == "lm_head", "the nearer of the two"
    seen, chain = of_zoo("shared_module", "first.weight")
    assert (chain.gradient.use_count, chain.gradient.path_count) == (2, 2)
    assert modules(seen, chain.gradient.hops) == [OUT, "head", "", "first"]


class Residual(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(depth)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(x)
        return x


@pytest.mark.parametrize(("depth", "paths"), [(0, 1), (1, 2), (5, 32), (40, MAX_PATHS)])
def test_each_residual_connection_doubles_the_paths(depth: int, paths: int) -> None:
    model = Residual(depth)
    _, chain = traced(model, "first.weight", lambda: model(X).square().mean(), steps=1)
    assert chain.gradient.path_count == paths
    # mean, square, an addition for each layer, then the product and the transposed weight of the first layer.
    assert sum(hop.operations for hop in chain.gradient.hops) == 2 + depth + 2


def test_a_module_that_is_never_called() -> None:
    _, chain = of_zoo("unused_branch", "unused.fc1.weight")
    assert (chain.gradient.found, chain.gradient.hops, chain.gradient.hidden, chain.gradient.whole) == (
        False,
        (),
        False,
        True,
    )


def test_an_encoder_under_no_grad() -> None:
    seen, chain = of_zoo("under_no_grad", "backbone.fc1.weight")
    assert not chain.gradient.found
    assert modules(seen, chain.gradient.hops) == [OUT, "head"]


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.b(self.a(x).detach()))  # type: ignore[no-any-return]


def test_detached_in_the_middle() -> None:
    model = Detached()
    seen, chain = traced(model, "a.weight", lambda: model(X).square().mean())
    assert not chain.gradient.found
    assert modules(seen, chain.gradient.hops) == [OUT, "head", "b"]
    seen, chain = traced(model, "b.weight", lambda: model(X).square().mean())
    assert chain.gradient.found
    assert modules(seen, chain.gradient.hops) == [OUT, "head", "b"]


def test_first_encoder_does_not_end_in_other_branch() -> None:
    """As in CLIP: the images come first, and what backward runs through next is the text encoder."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.images, self.texts = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            images = self.images(x)
            return images @ self.texts(x).T

    model = Pair()
    seen, chain = traced(model, "images.weight", lambda: model(X).square().mean())
    assert not chain.gradient.found
    assert modules(seen, chain.gradient.hops) == [OUT, ""]


def test_frozen_parameter_beside_trained_bias_ends_there() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].weight.requires_grad_(False)
    seen, chain = traced(model, "0.weight", lambda: model(X).square().mean())
    assert (chain.gradient.found, chain.gradient.onward, chain.gradient.upstream) == (True, (), -1)
    assert modules(seen, chain.gradient.hops)[-1] == "0"


def test_uncalled_module_is_found_by_frozen_weight() -> None:
    class WithAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prompt = nn.Parameter(torch.ones(3, 4))
            self.attention = nn.MultiheadAttention(4, 2).requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.cat([self.prompt, x])[:, None]
            return self.attention(y, y, y)[0]  # type: ignore[no-any-return]

    model = WithAttention()
    seen, chain = traced(model, "attention.out_proj.weight", lambda: model(X).square().mean())
    assert chain.gradient.found
    assert modules(seen, chain.gradient.hops)[-1] == "attention"
    assert seen.state.tree.parameters[chain.gradient.upstream].path == "prompt"


def test_several_losses_of_one_backward_and_backward_each() -> None:
    model = nn.ModuleDict({"body": nn.Linear(4, 4), "one": nn.Linear(4, 2), "two": nn.Linear(4, 1)})

    def losses() -> list[Tensor]:
        features = model["body"](X)
        return [model[head](features).square().mean() for head in ("one", "two")]

    seen, chain = traced(model, "two.weight", lambda: sum(losses(), torch.zeros(())))
    assert modules(seen, chain.gradient.hops) == [OUT, "two"]
    seen, chain = traced(model, "body.weight", lambda: sum(losses(), torch.zeros(())))
    assert chain.gradient.path_count == 2
    with watched() as seen:
        ask(seen, "two.weight")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(2):
            first, second = losses()
            first.backward(retain_graph=True)  # type: ignore[no-untyped-call]
            second.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    assert told(seen).gradient.found, "the second backward of the step"


def test_backward_on_several_tensors() -> None:
    model = nn.Linear(4, 2)
    with watched() as seen:
        ask(seen, "weight")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        torch.autograd.backward([model(X).mean(), model(X).square().mean()])
        optimizer.step()
    assert told(seen).gradient.path_count == 2


@pytest.mark.parametrize(
    "loop", ["accumulation", "lbfgs", "adamw", "step_in_backward", "with_evaluation", "grad_scaler"]
)
def test_it_is_told_once_in_any_loop(loop: str) -> None:
    specimen = SPECIMENS["mlp"]()
    with watched() as seen:
        ask(seen, "fc1.weight")
        loops.LOOPS[loop](specimen.model, specimen.batch, specimen.loss, 3)
    chain = told(seen)
    assert chain.gradient.found
    assert [path for path, _ in groupby(modules(seen, chain.gradient.hops))][-3:] == ["fc2", "act", "fc1"]


def test_a_generator_is_come_to_through_the_discriminator() -> None:
    generator, discriminator = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())
    with watched() as seen:
        one, other = (torch.optim.Adam(model.parameters()) for model in (generator, discriminator))
        for step in range(4):
            if step == 2:
                (path,) = [info.path for info in seen.state.tree.parameters if info.shape == (3, 4)]
                ask(seen, path)
            fake = generator(X)
            other.zero_grad()
            discriminator(fake.detach()).mean().backward()
            other.step()
            one.zero_grad()
            discriminator(fake).mean().backward()
            one.step()
    chain = told(seen)
    assert chain.gradient.found, "not in the discriminator's backward, which comes first"
    types = [seen.state.tree.modules[hop.module].type_name for hop in chain.gradient.hops if hop.module >= 0]
    assert types == ["Sigmoid", "Linear", "ReLU", "Linear"]


def test_a_script_that_updates_its_parameters_itself() -> None:
    model = nn.Linear(4, 2)
    with watched() as seen:
        model(X).mean().backward()
        ask(seen, "weight")
        for _ in range(2):
            model(X).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
    assert told(seen).gradient.found


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        return gradients[0] * 2


def test_a_custom_function_goes_by_its_name() -> None:
    model = nn.Linear(4, 2)
    _, chain = traced(model, "weight", lambda: Double.apply(model(X)).mean())  # type: ignore[no-untyped-call]
    assert chain.gradient.hops[0].names == ("MeanBackward0", "DoubleBackward")


@pytest.mark.parametrize("reentrant", [False, True])
def test_within_a_checkpoint(reentrant: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(checkpoint(self.inner, self.first(x), use_reentrant=reentrant))  # type: ignore[no-any-return]

    model = Model()
    seen, chain = traced(model, "inner.weight", lambda: model(X).square().mean())
    assert (chain.gradient.found, chain.gradient.hidden) == (not reentrant, reentrant)
    seen, chain = traced(model, "first.weight", lambda: model(X).square().mean())
    assert chain.gradient.found
    assert any(hop.hidden for hop in chain.gradient.hops) == reentrant
    assert ("inner" in modules(seen, chain.gradient.hops)) == (not reentrant)


def test_large_graph_is_looked_at_from_loss() -> None:
    model = Residual(3)
    tree = build([("model", model)])
    loss = model(X).square().mean()
    near, far = (
        (next(i for i, p in enumerate(tree.parameters) if p.path == path)) for path in ("layers.2.bias", "first.bias")
    )
    whole = find_gradient_path([loss], ModuleCallLog(), Target(tree, 0, far))
    assert whole.found
    assert whole.whole
    cut = find_gradient_path([loss], ModuleCallLog(), Target(tree, 0, far), most=8)
    assert (cut.found, cut.whole, cut.operations) == (False, False, 8)
    assert find_gradient_path([loss], ModuleCallLog(), Target(tree, 0, near), most=8).found


def test_nothing_of_that_name() -> None:
    model = nn.Linear(4, 2)
    with watched() as seen:
        ask(seen, "wieght")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        model(X).mean().backward()
        optimizer.step()
    (refused,) = seen.all(CommandRejected)
    assert "did you mean weight?" in refused.reason
    assert not seen.all(GradientPathFound)


def test_the_bytes_that_the_optimizer_keeps() -> None:
    specimen = SPECIMENS["frozen_encoder_with_prompt"]()
    with watched() as seen:
        ask(seen, "prompt")
        loops.adamw(specimen.model, specimen.batch, specimen.loss, 1)
        ask(seen, "text_encoder")
        loops.adamw(specimen.model, specimen.batch, specimen.loss, 1)
    prompt, encoder = seen.all(OptimizerStateRead)
    moment = 4 * WIDTH * 4
    assert (prompt.bytes, prompt.entries) == (
        2 * moment + 4,
        (("exp_avg", moment), ("exp_avg_sq", moment), ("step", 4)),
    )
    assert (encoder.bytes, encoder.entries) == (0, ())


def test_the_group_of_each_parameter() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    stranger = nn.Parameter(torch.ones(2))
    groups = [{"params": [stranger, model[1].bias]}, {"params": [*model[0].parameters(), model[1].weight]}]
    with watched() as seen:
        optimizer = torch.optim.SGD(groups, lr=0.1)
        model(X).mean().backward()
        optimizer.step()
    (info,) = seen.all(OptimizersFound)[-1].optimizers
    assert {seen.state.tree.parameters[p].path: g for p, g in zip(info.parameters, info.group_of)} == {
        "1.bias": 0, "0.weight": 1, "0.bias": 1, "1.weight": 1,
    }  # fmt: skip
    assert info.unknown_parameters == 1


def test_run_is_same_and_nothing_is_kept() -> None:
    def run(*asked: str) -> list[Tensor]:
        specimen = SPECIMENS["dropout"]()
        torch.manual_seed(3)
        with watched() as seen:
            for path in asked:
                ask(seen, path)
            loops.adamw(specimen.model, specimen.batch, specimen.loss, 3)
        assert len(seen.all(GradientPathFound)) == len(asked)
        return [parameter.detach() for parameter in specimen.model.parameters()]

    with torch.random.fork_rng(devices=[]):
        assert all(map(torch.equal, run("0.weight", "3", "3.bias"), run()))
    gc.collect()
    gc.disable()
    try:
        model = Residual(2)
        output = model(X)
        alive = weakref.ref(model)
        with watched() as seen:
            ask(seen, "first.weight")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for _ in range(2):
                output = model(X)
                output.square().mean().backward()
                optimizer.step()
            tensor = weakref.ref(output)
            del output
            assert told(seen).gradient.found
            assert tensor() is None, "the graph is kept"
        del model, optimizer
    finally:
        gc.enable()
    gc.collect()
    assert alive() is None
