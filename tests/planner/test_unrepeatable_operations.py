"""The operations that the planner cannot repeat on the device "meta": a forecast through them is an estimate, and says so.

Their results have sizes that depend on values, or they have no implementation on that device. torch's own list of operations
shows that there are no others among them.
"""

from __future__ import annotations

import sys
import unittest
import warnings
import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
import torch
from helpers.examples import nightly
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from gradtui.planner import Forecaster, Plan, Replay
from gradtui.probe.autograd import ModuleCallLog, OperationLog, OperationRecord
from gradtui.probe.model.tree_builder import build
from gradtui.protocol.commands import TraceStep
from gradtui.protocol.events import OperationsRecorded
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.forecast import forecast, question
from gradtui.run.text.forecast import why_by_rules

MASK = torch.tensor([True, False, True])
LENGTHS = torch.tensor([3, 2, 1])

UNREPEATABLE: dict[str, Callable[[Tensor], Tensor]] = {
    "aten.index.Tensor": lambda x: x[MASK],
    "aten.masked_select.default": lambda x: x.masked_select(x > 0),
    "aten._ctc_loss.Tensor": lambda x: nn.functional.ctc_loss(
        x.view(3, 1, 8).log_softmax(-1), torch.tensor([[1]]), torch.tensor([3]), torch.tensor([1])
    ),
    "aten._pack_padded_sequence.default": lambda x: (
        nn.utils.rnn.pack_padded_sequence(x.unsqueeze(2), LENGTHS, batch_first=True).data
    ),
    "aten.linalg_lstsq.default": lambda x: torch.linalg.lstsq(x[:, :3], x[:, 3:]).solution,
    # The backward of these returns no gradient.
    "aten.linalg_householder_product.default": lambda x: torch.linalg.householder_product(x.t(), torch.empty(0)),
    "aten.linalg_vector_norm.default": lambda x: torch.linalg.vector_norm(x, 0),
}
"""By name: an operation that cannot be repeated, and code that calls it."""
NOT_IN_THE_LIST = {"aten.index.Tensor", "aten._pack_padded_sequence.default"}
"""Those of which torch's list of operations has no sample: indexing by a mask, and a function for sequences."""

REPEATED: dict[str, Callable[[Tensor], Tensor]] = {
    "nonzero": lambda x: x[torch.where(x > 0)],
    "repeat_interleave": lambda x: torch.repeat_interleave(x, torch.tensor([1, 2, 0]), 0),
    "bincount": lambda x: x * torch.bincount(torch.tensor([0, 1]), weights=x[0, :2].detach()).sum(),
    "unique": lambda x: x * torch.unique(x.detach()).sum(),
    "item": lambda x: x * x.max().item(),
    "index_put": lambda x: x.clone().index_put((x > 0,), torch.tensor(0.0)),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x),
    "tensor_split": lambda x: torch.cat([each * 2 for each in torch.tensor_split(x, torch.tensor([1, 2]))]),
    "grouped_mm": lambda x: torch._grouped_mm(
        x.bfloat16(), torch.ones(2, 8, 8, dtype=torch.bfloat16), offs=torch.tensor([1, 3], dtype=torch.int32)
    ).float(),
}
"""Code whose sizes depend on values, and whose operations can be repeated: through what they cannot, no gradient passes."""

UNRECORDED: dict[str, Callable[[Tensor], Tensor]] = {
    "no plain strided tensor": lambda x: x.to_sparse().to_dense(),
    "NestedTensor": lambda x: torch.nested.to_padded_tensor(torch.nested.as_nested_tensor([x, x[:2]]), 0.0),
}
"""Code with which no step can be recorded, by a part of the reason."""

BATCH = torch.linspace(-1, 1, 24).view(3, 8)


class Around(nn.Module):
    """A function between a linear layer and the loss."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.second(self.first(x).tanh()).tanh())


def recorded(function: Callable[[Tensor], Tensor]) -> Watched:
    model = Around(function)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with watched() as run:
        for _ in run.steps(3, {2: lambda number: TraceStep(number)}):
            optimizer.zero_grad()
            model(BATCH).sum().backward()
            optimizer.step()
    return run


def forecast_of(run: Watched) -> Any:
    """Return the forecast of a freeze of the first layer, with the planner's answer if there is one."""
    state = run.state
    asked = question(state, forecast(state, (0, 1), False))
    if asked is not None:
        planner = Forecaster()
        apply(state, planner.with_peak(planner.answer(asked), asked))
    return forecast(state, (0, 1), False)


@pytest.mark.parametrize("name", UNREPEATABLE)
def test_forecast_through_unrepeatable_operation_is_estimate(name: str) -> None:
    run = recorded(UNREPEATABLE[name])
    assert any(each.name == name for each in run.state.operations.operations)  # type: ignore[union-attr]
    found = forecast_of(run)
    assert (found.is_exact, found.why_not_exact) == (False, (name,))
    # Those of the documented rules: gradients have the sizes of their parameters. The peak is not forecast.
    _, reached = keeps(Around(UNREPEATABLE[name]), lambda model: model(BATCH).sum())
    assert found.gradients == -sum(((8 * 8, 8)[index]) * 4 for index in reached & {0, 1})
    assert (found.peak, found.work, found.is_final) == (None, None, True)


@pytest.mark.parametrize("name", REPEATED)
def test_forecast_past_operations_without_gradient_is_exact(name: str) -> None:
    try:
        REPEATED[name](BATCH)
    except (NotImplementedError, AttributeError):
        pytest.skip("torch has no such operation on the CPU")
    run = recorded(REPEATED[name])
    found = forecast_of(run)
    assert (found.is_exact, found.why_not_exact) == (True, ())
    assert found.peak is not None
    every, last = (keeps(Around(REPEATED[name]), lambda model: model(BATCH).sum(), chosen) for chosen in (None, {2, 3}))
    assert found.activations == last[0] - every[0] < 0


@pytest.mark.parametrize("reason", UNRECORDED)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_missing_record_of_step_has_reason(reason: str) -> None:
    run = recorded(UNRECORDED[reason])
    found = forecast_of(run)
    assert (found.is_exact, found.is_final) == (False, False)
    assert reason in why_by_rules(run.state)


class Held:
    """What autograd keeps instead of a tensor: it is alive as long as the graph is."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()


def keeps(
    model: nn.Module, loss: Callable[[Any], Tensor], trains: set[int] | None = None
) -> tuple[int, frozenset[int]]:
    """Return the bytes that the graph of a loss keeps, and the parameters that get a gradient, if only these train.

    The graph of a result that nothing uses is freed before they are counted.
    """
    parameters = list(model.parameters())
    for index, parameter in enumerate(parameters):
        parameter.grad = None
        parameter.requires_grad_(trains is None or index in trains)
    known = {each.untyped_storage().data_ptr() for each in parameters}
    held: weakref.WeakSet[Held] = weakref.WeakSet()

    def pack(tensor: Tensor) -> Held:
        held.add(kept := Held(tensor))
        return kept

    with saved_tensors_hooks(pack, lambda kept: kept.tensor):
        value = loss(model)
    found = [each.tensor.untyped_storage() for each in held]
    size = sum({each.data_ptr(): each.nbytes() for each in found if each.data_ptr() not in known}.values())
    if value.requires_grad:
        value.backward()
    return size, frozenset(index for index, each in enumerate(parameters) if each.grad is not None)


class Sample(nn.Module):
    """One sample of torch's list: its differentiable tensors are the parameters, and the operation takes their products."""

    def __init__(self, operation: Callable[..., Any], sample: Any) -> None:
        super().__init__()
        self.operation, self.places, self.given = operation, list[int](), nn.ParameterList()
        self.leaves, self.spec = tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        for at, leaf in enumerate(self.leaves):
            if isinstance(leaf, Tensor) and leaf.requires_grad:
                self.places.append(at)
                self.given.append(nn.Parameter(leaf.detach().clone()))

    def forward(self) -> Tensor:
        torch.manual_seed(0)
        leaves = list(self.leaves)
        for at, parameter in zip(self.places, self.given):
            leaves[at] = parameter * 1.0
        first, others, keywords = tree_unflatten(leaves, self.spec)
        results = [each for each in tree_leaves(self.operation(first, *others, **keywords)) if is_differentiable(each)]
        return sum(
            ((each.abs() if each.is_complex() else each).float().sum() for each in results),
            torch.zeros(()),
        )


def is_differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sample]:
    """The samples of torch's list of operations, in single precision or else in bfloat16."""
    if "expecttest" not in sys.modules:
        # The list's module imports it for torch's own tests.
        monkeypatch.setitem(sys.modules, "expecttest", SimpleNamespace(TestCase=unittest.TestCase))
    # The import lets scripts change the flags of torch.backends only in contexts, from then on.
    flag = "__allow_nonbracketed_mutation_flag"
    monkeypatch.setattr(torch.backends, flag, getattr(torch.backends, flag))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        profile = hypothesis.settings.get_current_profile_name()
        from torch.testing._internal.common_methods_invocations import op_db

        # The import loads a profile of torch's.
        hypothesis.settings.load_profile(profile)
        yield _samples(op_db)  # type: ignore[misc]


def _samples(operations: list[Any]) -> Iterator[Sample]:
    """Yield samples of every 40th operation and of those that are unrepeatable, or nightly of all."""
    unrepeatable = tuple(name.split(".")[1].strip("_") for name in UNREPEATABLE.keys() - NOT_IN_THE_LIST)
    for at, each in enumerate(operations):
        if nightly(at % 40 and not each.name.replace(".", "_").endswith(unrepeatable), False):
            continue
        dtype = next((kind for kind in (torch.float32, torch.bfloat16) if kind in each.dtypes), None)
        # These make sparse tensors, or views that leave their storage when it is copied.
        if dtype is None or not each.supports_autograd or each.name.startswith(("sparse", "to_sparse")):
            continue
        # Neighbours in the list differ least.
        for sample in islice(each.sample_inputs("cpu", dtype, requires_grad=True), 0, 8, 2):
            if each.formatted_name != "as_strided_partial_views":
                yield Sample(each.op, sample)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_exact_operations_are_repeatable(samples: Any) -> None:
    unrepeatable: set[str] = set()
    exact, wrong = 0, []
    for sample in samples:
        tree, log = build([("sample", sample)]), OperationLog()
        log.record = record = OperationRecord(tree, ModuleCallLog())
        log.enter()
        try:
            loss = sample()
        finally:
            log.leave()
        record.ends_with([loss])
        found: OperationsRecorded = record.finish(0.0, 1)
        if found.missing or not loss.requires_grad:
            assert not loss.requires_grad or not found.operations
            continue
        replay, count = Replay(found), len(sample.given)
        now, measured = replay.under(Plan(frozenset(range(count)))), keeps(sample, lambda model: model())
        for trains in ({*range(count)}, *({index} for index in range(count))):
            after = replay.under(Plan(frozenset(trains)))
            unrepeatable.update((*now.unknown, *after.unknown))
            if not now.unknown and not after.unknown:
                real = keeps(sample, lambda model: model(), trains)
                names = [each.name for each in found.operations]
                sizes = [each.nbytes for each in sample.given]
                gradients = [sum(sizes[at] for at in reached) for reached in (after.reached, real[1])]
                if measured[0] + after.saved - now.saved != real[0] or gradients[0] != gradients[1]:
                    wrong.append((trains, measured[0], now.saved, after.saved, real[0], gradients, names))
                exact += 1
    assert not wrong, [(each[-1], each[:-1]) for each in wrong]
    assert unrepeatable == UNREPEATABLE.keys() - NOT_IN_THE_LIST
    assert exact > nightly(25, 1_000)
