"""Where a NaN in a forward came from, told from the autograd graph alone, against where the test has put it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from zoo import SPECIMENS

from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog
from gradtui.probe.gradients.nonfinite_check import BELOW, FINITE, INF, NAN, NonFiniteCheck
from gradtui.probe.gradients.nonfinite_forward import Origin, find_origin
from gradtui.probe.model.module_tree import ModuleTree
from gradtui.probe.model.tree_builder import build
from gradtui.probe.torch_private.saved_origins import kept_by

X = torch.linspace(-1, 1, 24).view(6, 4)
ZOO = [name for name in SPECIMENS if name not in ("lazy", "under_no_grad", "lstm", "nested_200")]
"""Without those whose modules give no tensor to autograd, and the one too deep for hooks of the test's own."""


def traced(model: nn.Module, tree: ModuleTree) -> ModuleCallLog:
    """A trace that module hooks of the test's own fill."""
    trace = ModuleCallLog()
    for module in model.modules():
        index = tree.index_of(module)
        module.register_forward_pre_hook(lambda *_, index=index: trace.entered(index))
        module.register_forward_hook(lambda *_: trace.left())
    return trace


def origin_of(loss: Tensor, tree: ModuleTree, trace: ModuleCallLog | None, seconds: float = 60.0) -> Origin:
    kind = NAN if loss.isnan() else INF
    found = find_origin([loss], kind, tree, trace, NonFiniteCheck(seconds))
    assert found is not None
    return found


def leaves(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    return ((name, module) for name, module in model.named_modules() if not [*module.children()])


def poisoned(name: str, chosen: str) -> tuple[ModuleTree, ModuleCallLog, Tensor] | None:
    """A loss whose NaN a module gives; None where the module gives no tensor of floats."""
    specimen = SPECIMENS[name]()
    tree = build([("model", specimen.model)])
    did: list[bool] = []

    def spoil(_module: nn.Module, _given: object, output: object) -> Tensor | None:
        if not isinstance(output, Tensor) or not output.is_floating_point() or not output.requires_grad:
            return None
        did.append(True)
        # Keeps nothing for backward: only what uses it can tell.
        return output + torch.full_like(output, math.nan)

    specimen.model.get_submodule(chosen).register_forward_hook(spoil)
    trace = traced(specimen.model, tree)
    loss = specimen.loss(specimen.model(*specimen.batch(0)))
    return (tree, trace, loss) if did and loss.isnan() else None


@pytest.mark.parametrize("name", ZOO)
def test_over_zoo_module_is_within_what_is_told(name: str) -> None:
    """In the order in which modules ran: between the first moment of the one and the last moment of the other."""
    names = [module for module, _ in leaves(SPECIMENS[name]().model)]
    made = {chosen: poisoned(name, chosen) for chosen in names[:: max(1, len(names) // 5)]}
    for chosen, (tree, trace, loss) in ((chosen, each) for chosen, each in made.items() if each is not None):
        index = next(
            index for index, info in enumerate(tree.modules) if chosen in (info.path, *_aliases(name, info.path))
        )
        found = origin_of(loss, tree, trace)
        ran = trace.modules
        first = ran.index(found.module) if found.module != OUTSIDE else len(ran) - 1
        last = len(ran) - 1 - ran[::-1].index(found.last)
        assert found.kind == NAN
        assert any(ran[moment] == index for moment in range(first, last + 1)) or found.is_input, (chosen, found)
    assert any(made.values())


def _aliases(name: str, path: str) -> list[str]:
    """The other names of a module that its model holds several times."""
    model = SPECIMENS[name]().model
    module = model.get_submodule(path)
    return [other for other, each in model.named_modules(remove_duplicate=False) if each is module]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor, bad: int = -1, region: bool = False) -> Tensor:
        layers = (self.first, self.second, self.third)
        for index, layer in enumerate(layers):
            x = checkpoint(layer, x, use_reentrant=False) if region and index == 1 else layer(x)
            x = (x * 0 + math.inf) * 0 if index == bad else x.tanh()
        return x.square().mean()


def net() -> tuple[Net, ModuleTree, ModuleCallLog]:
    torch.manual_seed(0)
    model = Net()
    tree = build([("model", model)])
    return model, tree, traced(model, tree)


def test_without_trace_parameters_before_it_tell_where() -> None:
    model, tree, _ = net()
    found = origin_of(model(X, bad=1), tree, None)
    assert not found.is_exact
    assert tree.modules[found.module].path == "second"


def test_what_a_checkpointed_region_keeps_is_not_unpacked() -> None:
    model, tree, trace = net()
    loss = model(X, bad=1, region=True)
    calls: list[object] = []
    model.second.register_forward_pre_hook(lambda *_: calls.append(None))
    found = origin_of(loss, tree, trace)
    assert not calls, "to unpack it would run the region's forward again"
    assert found.kind in (NAN, INF)


def test_mask_of_negative_infinity_is_no_cause() -> None:
    """It goes into an attention by itself, long before the operation that gives NaN."""
    model = nn.MultiheadAttention(4, 1, batch_first=True)
    tree = build([("model", model)])
    trace = traced(model, tree)
    mask = torch.triu(torch.full((6, 6), -math.inf), 1)
    out, _ = model(X[None], X[None], X[None], attn_mask=mask)
    (loss,) = ((out.mean() * 0) / (out.mean() * 0),)
    found = origin_of(loss, tree, trace)
    assert (found.kind, found.module, found.last) == (NAN, OUTSIDE, OUTSIDE)


def test_negative_infinity_counts_without_worse_value() -> None:
    model, tree, trace = net()
    hidden = (model.first(X) * 0).log()
    found = origin_of((hidden * hidden).mean(), tree, trace)
    assert found.kind in (BELOW, INF)
    assert found.module == OUTSIDE


def test_outside_input_is_named_by_receiving_module() -> None:
    model, tree, trace = net()
    found = origin_of(model(X.clone().fill_(math.nan)), tree, trace)
    assert (tree.modules[found.module].path, found.is_input, found.is_exact) == ("first", True, True)


def test_time_that_is_up_finds_nothing() -> None:
    model, tree, trace = net()
    assert find_origin([model(X, bad=1)], NAN, tree, trace, NonFiniteCheck(0.0)) is None


def test_names_of_saved_tensors_match_torch() -> None:
    """Whose result each tensor is, for an operation of torch's and for a custom Function."""
    x = torch.ones(3, requires_grad=True)
    middle = x.exp()

    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, given: Tensor) -> Tensor:
            ctx.save_for_backward(given)  # type: ignore[attr-defined]
            return given * 2

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
            return gradient

    custom = Custom.apply(middle)
    ((own, made_by),) = kept_by(middle.grad_fn)
    assert own.equal(middle)
    assert made_by is middle.grad_fn
    ((given, made_by),) = kept_by(custom.grad_fn)
    assert given.equal(middle)
    assert made_by is middle.grad_fn
    norm = nn.functional.layer_norm(middle, (3,))
    makers = [maker for _, maker in kept_by(norm.grad_fn)]
    assert makers.count(norm.grad_fn) == 2, "mean and deviation"
    assert makers.count(middle.grad_fn) == 1


def test_what_a_backward_has_freed_says_nothing() -> None:
    x = torch.ones(3, requires_grad=True)
    loss = x.exp().sum()
    node = loss.grad_fn.next_functions[0][0]
    loss.backward()
    assert [*kept_by(node)] == []


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.tensor([1.0, -math.inf]), BELOW),
        (torch.tensor([-math.inf, math.inf]), INF),
        (torch.tensor([math.inf, math.nan]), NAN),
        (torch.tensor([1.0, 2.0]), FINITE),
        (torch.tensor([]), FINITE),
        (torch.tensor([1, 2]), FINITE),
        (torch.tensor([1 + 2j, complex(0, math.nan)]), NAN),
        (torch.tensor([65504.0, 65504.0], dtype=torch.float16), FINITE),
        (torch.tensor([1.0, math.inf], dtype=torch.bfloat16), INF),
        (torch.tensor([0.0, 1.0, math.nan]).to_sparse(), NAN),
        (torch.tensor([[1.0, math.nan], [2.0, 3.0]])[:, 0], FINITE),
        (torch.ones(2).to(torch.float8_e5m2), None),
        (torch.ones(2, device="meta"), None),
    ],
)
def test_what_a_tensor_holds(tensor: Tensor, expected: str | None) -> None:
    assert NonFiniteCheck(60.0).at(tensor) == expected
    assert NonFiniteCheck(-1.0).at(tensor) in (None, FINITE)


def test_two_parts_of_tensor_are_told_apart() -> None:
    whole = torch.tensor([1.0, 2.0, math.nan, 3.0])
    check = NonFiniteCheck(60.0)
    assert (check.at(whole[:2]), check.at(whole[::2]), check.at(whole)) == (FINITE, NAN, NAN)
