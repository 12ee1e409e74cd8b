"""The walk over autograd's graph on graphs made by hand."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradtui.probe.autograd.graph_summary import GraphSummary, KnownTensors
from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog, ModuleCallLogger
from gradtui.probe.autograd.saved_tensors import walk
from gradtui.probe.model.module_tree import Leaf
from gradtui.probe.torch_private.private_names import leaf_of, storage_key


def facts_of(
    *roots: Tensor, frozen: dict[Tensor, int] | None = None, leaves: dict[Tensor, int] | None = None
) -> GraphSummary:
    known = KnownTensors(
        {storage_key(tensor): module for tensor, module in (frozen or {}).items()},
        {id(tensor): Leaf(module, module) for tensor, module in (leaves or {}).items()},
    )
    return walk(roots, ModuleCallLog(), known)


class Remembers(torch.autograd.Function):
    """A custom function whose author put a tensor where torch's own leaf nodes have theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.variable = x
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * 2


def test_custom_function_is_operation_whatever_its_attributes() -> None:
    x = torch.ones(10, requires_grad=True)
    output = Remembers.apply(x.exp())
    facts = facts_of(output)
    assert leaf_of(output.grad_fn) is None
    # Two operations: the function, and the exponential in front of it, which share what they keep.
    assert facts.total == 40


def test_a_leaf_is_found_behind_its_operation() -> None:
    x = torch.ones(3, requires_grad=True)
    output = x.exp()
    assert output.grad_fn is not None
    assert leaf_of(output.grad_fn.next_functions[0][0]) is x


def test_shared_bytes_count_once_without_parameters() -> None:
    weight = torch.ones(4, 4, requires_grad=True)
    x = torch.ones(2, 4)
    hidden = x @ weight
    output = hidden.exp()
    facts = facts_of((output * output).sum(), frozen={weight: OUTSIDE})
    # x for the weight's gradient, and the exponential, kept by itself and by both sides of the product.
    assert facts.total == x.nbytes + output.nbytes
    assert facts.by_module == {OUTSIDE: facts.total}


def test_several_roots_share_one_graph() -> None:
    x = torch.ones(3, requires_grad=True)
    hidden = x.exp()
    assert facts_of(hidden.sum(), hidden.mean()).total == hidden.nbytes


def test_operations_from_before_first_module_call_are_counted() -> None:
    x = torch.ones(3, requires_grad=True)
    state = x.exp().sin()
    trace = ModuleCallLog()
    trace.entered(0)
    output = (state * x.cos()).sum()
    trace.left()
    facts = walk([output], trace, KnownTensors({}, {}))
    # exp and sin before the call; cos, the product and the sum in it.
    assert (facts.operations, facts.earlier_operations) == (5, 2)
    assert facts_of(output).earlier_operations == 0


def test_a_root_without_a_graph_is_nothing() -> None:
    assert not facts_of(torch.ones(3)).active


def test_checkpointed_tensors_are_not_measured() -> None:
    layer = nn.Linear(4, 4)
    x = torch.ones(2, 4, requires_grad=True)
    facts = facts_of(checkpoint(layer, x, use_reentrant=False).sum())
    assert facts.regions.recomputed == {OUTSIDE: None}


def test_a_freed_graph_keeps_nothing() -> None:
    x = torch.ones(3, requires_grad=True)
    output = x.exp().sum()
    output.backward()
    assert facts_of(output).total == 0


def test_a_walk_keeps_nothing_alive() -> None:
    x = torch.ones(3, requires_grad=True)
    hidden = x.exp()
    gone = weakref.ref(hidden)
    output = hidden.sum()
    facts = facts_of(output)
    del hidden, output
    assert gone() is None
    assert facts.total == x.nbytes


def test_a_deep_graph_is_walked_without_recursion() -> None:
    x = torch.ones(1, requires_grad=True)
    output = x.exp()
    for _ in range(5_000):
        output = output + 1
    # What the first of the operations keeps.
    assert facts_of(output).total == x.nbytes


def test_kept_frozen_weight_lets_gradient_past() -> None:
    upstream = torch.ones(2, 4, requires_grad=True)
    frozen, bias = torch.ones(4, 4), torch.ones(4, requires_grad=True)
    assert facts_of((upstream.exp() @ frozen).sum(), frozen={frozen: 7}).passing == {7, OUTSIDE} - {OUTSIDE}
    # Kept, yet nothing but the module's own parameter is behind it.
    own = nn.functional.layer_norm(torch.ones(2, 4), (4,), frozen[0].clone(), bias)
    assert 7 not in facts_of(own.sum(), frozen={frozen: 7}, leaves={bias: 7}).passing


def test_operations_belong_to_the_module_that_was_running() -> None:
    trace = ModuleCallLog()
    x = torch.ones(2, requires_grad=True)
    before = x.exp()
    trace.entered(3)
    outer = before.exp()
    trace.entered(5)
    inner = outer.exp()
    trace.left()
    again = inner.exp()
    trace.left()
    after = again.exp()
    facts = walk([after], trace, KnownTensors({}, {}))
    assert facts.by_module == {OUTSIDE: 16, 3: 16, 5: 8}
    assert facts.passing == {3, 5, OUTSIDE}


def test_the_tracer_hears_one_thread_only() -> None:
    import threading

    module = nn.Linear(1, 1)
    tracer = ModuleCallLogger()
    tracer.entered(0, module)
    trace = tracer.begin({id(module): (2, weakref.ref(module))})
    thread = threading.Thread(target=tracer.entered, args=(0, module))
    thread.start()
    thread.join()
    assert trace.modules == []
    tracer.entered(0, module)
    assert trace.modules == [2]
    tracer.stop()
    tracer.left(0)
    assert trace.modules == [2]


def test_kept_bytes_belong_to_upstream_parameter() -> None:
    # prompt -> frozen block (7) -> norm of its own (8) -> head (9)
    prompt, block = torch.ones(2, 4, requires_grad=True), torch.ones(4, 4)
    scale, head = torch.ones(4, requires_grad=True), torch.ones(4, 1, requires_grad=True)
    trace = ModuleCallLog()
    x = prompt * 2
    for index, work in ((7, lambda x: torch.tanh(x @ block)), (8, lambda x: x * scale), (9, lambda x: x @ head)):
        trace.entered(index)
        x = work(x)
        trace.left()
    leaves = {id(prompt): Leaf(0, 5), id(scale): Leaf(1, 8), id(head): Leaf(2, 9)}
    facts = walk([x.sum()], trace, KnownTensors({}, leaves))
    assert facts.upstream[7] == 0
    # Its own parameter is not upstream of it.
    assert facts.upstream[8] == 0
    assert facts.upstream[9] in (0, 1)


def test_nothing_is_upstream_of_the_first_that_trains() -> None:
    weight, other = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)
    trace = ModuleCallLog()
    trace.entered(3)
    x = torch.tanh(torch.ones(2, 4) @ weight)
    trace.left()
    trace.entered(4)
    x = x @ other
    trace.left()
    facts = walk([x.sum()], trace, KnownTensors({}, {id(weight): Leaf(0, 3), id(other): Leaf(1, 4)}))
    assert facts.upstream == {4: 0, OUTSIDE: facts.upstream[OUTSIDE]}


@pytest.mark.parametrize("number", [2, 0.5, 2j])
def test_python_number_is_no_tensor_that_autograd_keeps(number: complex) -> None:
    x = torch.ones(3, requires_grad=True)
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor.detach())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        x * number
    assert facts_of(x * number).total == sum(tensor.nbytes for tensor in packed) == 0
    # One that the script has made a tensor of is.
    kept = torch.tensor(number, dtype={int: torch.int64, float: torch.float64}.get(type(number), torch.complex128))
    assert facts_of(x * kept).total == kept.nbytes


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("compressed", [False, True])
def test_kept_sparse_tensors_do_not_end_walk(compressed: bool) -> None:
    adjacency = torch.eye(3).to_sparse_csr() if compressed else torch.eye(3).to_sparse_coo()
    x = torch.ones(3, 2, requires_grad=True)
    facts = facts_of(torch.sparse.mm(adjacency, x.exp()).sum())
    exponential, values_and_indices = 3 * 2 * 4, 3 * 4 + 2 * 3 * 8
    # What is within a compressed one is reached by operations only, so it stays uncounted.
    assert facts.total == (exponential if compressed else exponential + values_and_indices)


def _classifier() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid())


def _traced(model: nn.Module, tracer: ModuleCallLogger, *inputs: Tensor) -> tuple[Tensor, ModuleCallLog]:
    """The output of a model, with the calls of its children and of itself (in that order of places) noted."""
    trace = tracer.begin({id(module): (index, weakref.ref(module)) for index, module in enumerate(model.modules())})
    for module in model.modules():
        module.register_forward_pre_hook(lambda module, _: tracer.entered(0, module))
        module.register_forward_hook(lambda module, *_: trace.left())
    output: Tensor = model(*inputs)
    return output, trace


def test_storage_is_charged_to_first_saver() -> None:
    model, tracer = _classifier(), ModuleCallLogger()
    x, target = torch.ones(256, 64), torch.rand(256, 1)
    output, trace = _traced(model, tracer, x)
    loss = nn.functional.binary_cross_entropy(output, target)
    facts = walk([loss], trace, KnownTensors({storage_key(each): OUTSIDE for each in model.parameters()}, {}))
    # The second linear layer saves what the ReLU saved before it, and the loss what the sigmoid saved before it.
    assert facts.by_module == {1: 256 * 64 * 4, 2: 256 * 128 * 4, 4: 256 * 4, OUTSIDE: target.nbytes}
    assert facts.total == sum(facts.by_module.values())


def test_recorded_backward_is_not_charged_with_forward() -> None:
    model, tracer = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), ModuleCallLogger()
    x = torch.ones(3, 4, requires_grad=True)
    output, trace = _traced(model, tracer, x)
    (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    loss = gradient.square().sum() + output.sum()
    facts = walk([loss], trace, KnownTensors({storage_key(each): OUTSIDE for each in model.parameters()}, {}))
    # The input by the first layer and the activation by tanh; the backward of the backward saves both once more.
    assert (facts.by_module[1], facts.by_module[2]) == (x.nbytes, 3 * 8 * 4)
    assert facts.by_module.get(3, 0) == 0


@pytest.mark.parametrize("region_first", [True, False])
def test_shared_bytes_are_charged_to_first_runner(region_first: bool) -> None:
    x = torch.ones(8, 4, requires_grad=True) + 1
    trace = ModuleCallLog()

    def operation() -> Tensor:
        trace.entered(1)
        output = x.square()
        trace.left()
        return output

    def region() -> Tensor:
        trace.entered(2)
        output: Tensor = checkpoint(torch.exp, x, use_reentrant=False)
        trace.left()
        return output

    first, second = (region, operation) if region_first else (operation, region)
    facts = walk([(first() + second()).sum()], trace, KnownTensors({}, {}, parents=[OUTSIDE, 0, 0]))
    assert facts.by_module == {2 if region_first else 1: x.nbytes}
    assert (facts.total, facts.regions.inputs) == (x.nbytes, {2: x.nbytes})


def test_what_gradient_penalty_keeps_of_forward_is_models() -> None:
    """WGAN-GP: backward of the penalty does not come to the model's own result, but to what lies before it."""
    batch, width = 32, 64
    critic = nn.Sequential(nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1))
    with watched() as seen:
        optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
        for _ in range(3):
            real, fake = torch.randn(batch, width), torch.randn(batch, width)
            mixed = (real + fake).div(2).requires_grad_()
            (gradient,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
            penalty = (gradient.norm(2, 1) - 1).square().mean()
            optimizer.zero_grad()
            (critic(fake).mean() - critic(real).mean() + 10 * penalty).backward()
            optimizer.step()
    # Of fake and real: the batch, what LeakyReLU was given, and what it gave. Of the mixed batch the last is not kept: nothing
    # leads from the penalty to the weight's gradient of the last layer.
    assert sum(seen.state.tree.saved.by_module) == (3 + 3 + 2) * batch * width * 4  # type: ignore[union-attr]
