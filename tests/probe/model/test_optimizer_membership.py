"""Joining an optimizer: which group, with what state, and never one that would raise an error at its next step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.examples import examples
from helpers.toggling import freeze, unfreeze
from helpers.training import TORCH, bits, square_step
from helpers.watched import Watched, watched
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.model.added_parameters import AddedParameters
from gradtui.probe.model.tree_builder import build
from gradtui.protocol.events import CommandApplied, CommandRejected, FreezeVerified, OptimizersFound
from gradtui.run.text import refusals

X = torch.linspace(-1, 1, 24).view(6, 4)

KINDS: dict[str, type[torch.optim.Optimizer]] = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
}
VARIANTS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    **{name: kind for name, kind in KINDS.items() if name not in ("LBFGS", "SparseAdam")},
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.1, nesterov=True),
    "fused SGD": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, fused=True),
    "fused Adam": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "fused Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, fused=True),
    "started Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, initial_accumulator_value=0.5),
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, foreach=True),
    "capturable": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "centered RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
}


def stack() -> nn.Sequential:
    """Only matrices, so that every optimizer takes it."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3)))


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    square_step(model, optimizer, X)


def only_answer(seen: Watched) -> str:
    (answer,) = seen.answers()
    return answer


def join(planned: list[membership.Membership]) -> None:
    with AddedParameters(list).joining(planned, 0):
        pass


# ---- every optimizer


# A fused SGD that has made its momentum buffers raises an error at a first gradient that comes later.
@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "fused SGD"])
def test_joined_parameter_trains_as_if_always_there(name: str) -> None:
    """To the bit: a parameter that was frozen from the start has no state, whether its optimizer knew of it or not."""
    make, model, plain = VARIANTS[name], stack(), stack()
    model[0].requires_grad_(False)
    with watched() as seen:
        optimizer = make([model[1].weight, model[2].weight])
        for _ in seen.steps(8, {3: unfreeze("0")}):
            step(model, optimizer)
    joined = f"1 joined {type(optimizer).__name__}, whose state_dict() holds 3 parameters instead of 2"
    assert only_answer(seen) == f"unfroze 0: 1 tensor, 16 parameters; {joined}"
    assert seen.letters() == {"0.weight": "T", "1.weight": "T", "2.weight": "T"}
    plain[0].requires_grad_(False)
    # Last in the order, as one that joins is.
    known = make([plain[1].weight, plain[2].weight, plain[0].weight])
    for number in range(8):
        plain[0].requires_grad_(number >= 3)
        step(plain, known)
    assert bits(model) == bits(plain)
    assert bits(model)[0] != bits(stack())[0]


@pytest.mark.parametrize("name", VARIANTS)
def test_checkpoint_of_extended_optimizer_loads_into_like(name: str) -> None:
    model = stack()
    model[0].requires_grad_(False)
    make = VARIANTS[name]
    with watched() as seen:
        optimizer = make([model[1].weight, model[2].weight])
        step(model, optimizer)
        seen.submit(unfreeze("0"))
        step(model, optimizer)
        twin = copy.deepcopy(model)
        other = make([twin[1].weight, twin[2].weight, twin[0].weight])  # type: ignore[index]
        # It takes over the very tensors it is given.
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        step(model, optimizer)
        step(twin, other)
    assert bits(model) == bits(twin)


def test_given_adagrad_state_equals_its_own() -> None:
    for options in ({}, {"initial_accumulator_value": 0.25}, {"fused": True}):
        for dtype in (torch.float32, torch.float64):
            tensor = nn.Parameter(torch.ones(2, 3, dtype=dtype))
            made = torch.optim.Adagrad([tensor], **options)
            joined = torch.optim.Adagrad([nn.Parameter(torch.zeros(1))], **options)
            join([membership.Membership(joined, joined.param_groups[0], tensor, "x")])
            for key, value in made.state[tensor].items():
                ours = joined.state[tensor][key]
                assert (ours.dtype, ours.device, ours.shape) == (value.dtype, value.device, value.shape)
                assert torch.equal(ours, value)


# ---- optimizers that do not take every parameter


class Parts(nn.Module):
    """An embedding with sparse gradients, a matrix, a vector and a complex filter."""

    def __init__(self, *, sparse: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4, sparse=sparse)
        self.matrix = nn.Linear(4, 4, bias=False)
        self.vector = nn.Parameter(torch.ones(4))
        self.filter = nn.Parameter(torch.ones(3, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.matrix(x + self.table(torch.arange(5))[:1]) * self.vector
        return torch.fft.irfft(torch.fft.rfft(mixed) * self.filter, n=4)


def trained(
    make: Callable[[Parts], list[torch.optim.Optimizer]], frozen: str, *, sparse: bool = True
) -> tuple[str, Parts]:
    """Train with one part frozen from the start, unfreeze it, train on; the answer, and the model."""
    model = Parts(sparse=sparse)
    model.get_parameter(frozen).requires_grad_(False)
    with watched() as seen:
        optimizers = make(model)
        for _ in seen.steps(6, {2: unfreeze(frozen)}):
            for optimizer in optimizers:
                optimizer.zero_grad()
            model(X).abs().square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
    return only_answer(seen), model


REFUSED: dict[str, tuple[Callable[[Parts], list[torch.optim.Optimizer]], str, str]] = {
    "a vector, Muon": (lambda m: [torch.optim.Muon([m.matrix.weight])], "vector", "no optimizer can take vector: Muon"),
    "a filter, Muon": (lambda m: [torch.optim.Muon([m.matrix.weight])], "filter", "no optimizer can take filter: Muon"),
    "a matrix, SparseAdam": (
        lambda m: [torch.optim.SparseAdam([m.table.weight])], "matrix.weight", "SparseAdam takes only sparse gradients",
    ),
    "a filter, Adafactor": (
        lambda m: [torch.optim.Adafactor([m.matrix.weight])], "filter", "Adafactor takes no complex parameters",
    ),
    "a filter, fused": (
        lambda m: [torch.optim.Adam([m.matrix.weight], fused=True)], "filter", "Adam takes no complex parameters",
    ),
    "a table, Adam": (lambda m: [torch.optim.Adam([m.matrix.weight])], "table.weight", "Adam takes no sparse gradients"),
    "a table, decay": (
        lambda m: [torch.optim.SGD([m.matrix.weight], weight_decay=0.1)], "table.weight", "together with weight decay",
    ),
    "a table of its own, AdamW": (
        lambda m: [torch.optim.AdamW([m.matrix.weight, m.table.weight])],
        "table.weight", "the optimizer that owns table.weight cannot train it: AdamW takes no sparse gradients",
    ),
    "a filter of its own, Adafactor": (
        lambda m: [torch.optim.Adafactor([m.matrix.weight, m.filter])], "filter", "owns filter cannot train it: Adafactor",
    ),
}  # fmt: skip


def _is_there(case: str) -> bool:
    return all(name not in case or hasattr(torch.optim, name) for name in ("Muon", "Adafactor"))


@pytest.mark.parametrize("case", [case for case in REFUSED if _is_there(case)])
def test_optimizer_that_would_raise_error_is_not_joined(case: str) -> None:
    make, frozen, reason = REFUSED[case]
    told, model = trained(make, frozen)
    assert reason in told
    assert not model.get_parameter(frozen).requires_grad


TAKEN: dict[str, tuple[Callable[[Parts], list[torch.optim.Optimizer]], str, str]] = {
    "a vector, beside Muon": (
        lambda m: [torch.optim.Muon([m.matrix.weight]), torch.optim.Adam([m.filter])], "vector", "joined Adam",
    ),
    "a table, beside Adam": (
        lambda m: [torch.optim.Adam([m.matrix.weight]), torch.optim.SGD([m.vector], lr=0.1)], "table.weight", "joined SGD",
    ),
    "a table, SparseAdam": (
        lambda m: [torch.optim.Adam([m.matrix.weight]), torch.optim.SparseAdam([nn.Parameter(torch.ones(1))])],
        "table.weight", "joined SparseAdam",
    ),
    "a table, Adagrad": (lambda m: [torch.optim.Adagrad([m.matrix.weight])], "table.weight", "joined Adagrad"),
    "a filter, Adam": (lambda m: [torch.optim.Adam([m.matrix.weight])], "filter", "joined Adam"),
    "a matrix, beside SparseAdam": (
        lambda m: [torch.optim.SparseAdam([m.table.weight]), torch.optim.RMSprop([m.vector])],
        "matrix.weight", "joined RMSprop",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("case", [case for case in TAKEN if _is_there(case)])
def test_of_several_optimizers_one_that_can_is_joined(case: str) -> None:
    make, frozen, expected = TAKEN[case]
    told, model = trained(make, frozen)
    assert f"; 1 {expected}, whose state_dict()" in told
    assert not torch.equal(model.get_parameter(frozen), Parts().get_parameter(frozen)) or frozen != "vector"
    assert model.get_parameter(frozen).requires_grad


def test_a_dense_table_joins_like_any_matrix() -> None:
    told, _ = trained(lambda m: [torch.optim.Adam([m.matrix.weight])], "table.weight", sparse=False)
    assert told.endswith("holds 2 parameters instead of 1")


def test_one_that_cannot_join_keeps_all_from_joining() -> None:
    model = Parts()
    model.requires_grad_(False)
    model.matrix.requires_grad_(True)
    with watched() as seen:
        optimizer = torch.optim.Adam(model.matrix.parameters())
        step_of = [p.requires_grad for p in model.parameters()]
        for _ in seen.steps(3, {1: unfreeze("")}):
            step(model, optimizer)
    assert "no optimizer can take table.weight" in only_answer(seen)
    assert [p.requires_grad for p in model.parameters()] == step_of
    assert len(optimizer.param_groups[0]["params"]) == 1


def test_lbfgs_beside_another_optimizer_is_not_joined() -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4), "c": nn.Linear(4, 4)})
    model["b"].requires_grad_(False)

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: Tensor) -> Tensor:
            for part in self.parts.values():
                x = part(x)
            return x

    chain = Chain()
    with watched() as seen:
        slow, fast = (
            torch.optim.LBFGS(model["a"].parameters(), max_iter=1),
            torch.optim.SGD(model["c"].parameters(), lr=0.1),
        )

        def closure() -> Tensor:
            slow.zero_grad()
            loss = chain(X).square().mean()
            loss.backward()
            return loss

        for number in range(6):
            slow.step(closure)
            fast.step()
            fast.zero_grad()
            if number == 2:
                seen.submit(unfreeze("parts.b"))
                seen.submit(freeze("parts.a.bias"))
    found = seen.answers()
    assert "; 2 joined SGD, whose" in found[0]
    assert refusals.LBFGS_MOVES_FROZEN in found[1]
    assert [len(group["params"]) for group in fast.param_groups] == [4]


# ---- which group


Test = Callable[[str, Tensor], bool]


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(nn.Linear(8, 8), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 2))
    return nn.ModuleDict({"backbone": model, "head": nn.Linear(8, 2)})


def optimizer_case(name: str, test: Test, **options: float) -> tuple[str, Test, dict[str, float]]:
    return name, test, options


DECAY = [
    optimizer_case("decay", lambda n, p: p.ndim > 1, weight_decay=0.1),
    optimizer_case("no decay", lambda n, p: p.ndim <= 1, weight_decay=0.0),
]
PLACES = [
    optimizer_case("backbone", lambda n, p: n.startswith("backbone")),
    optimizer_case("head", lambda n, p: n.startswith("head")),
]
HEAD = [
    optimizer_case("decay", lambda n, p: n == "head.weight", weight_decay=0.1),
    optimizer_case("no decay", lambda n, p: n == "head.bias", weight_decay=0.0),
]
NORMS = [
    optimizer_case("norms", lambda n, p: "norm" in n, lr=1e-5, weight_decay=0.0),
    optimizer_case("head", lambda n, p: n.startswith("head"), lr=1e-3, weight_decay=0.1),
]
RATES = [
    optimizer_case("backbone decay", lambda n, p: n.startswith("backbone") and p.ndim > 1, lr=1e-5, weight_decay=0.1),
    optimizer_case(
        "backbone no decay", lambda n, p: n.startswith("backbone") and p.ndim <= 1, lr=1e-5, weight_decay=0.0
    ),
    optimizer_case("head", lambda n, p: n.startswith("head"), lr=1e-3, weight_decay=0.1),
]


@pytest.mark.parametrize(
    ("groups", "orphan", "expected"),
    [
        (DECAY, "backbone.1.layers.0.linear1.weight", "decay"),
        (DECAY, "backbone.1.layers.0.linear1.bias", "no decay"),
        (DECAY, "backbone.1.layers.1.norm1.weight", "no decay"),
        (DECAY, "backbone.0.weight", "decay"),
        (DECAY, "head.bias", "no decay"),
        (HEAD, "backbone.0.weight", "decay"),
        (HEAD, "backbone.0.bias", "no decay"),
        (HEAD[::-1], "backbone.0.weight", "decay"),
        (PLACES, "backbone.2.weight", "backbone"),
        (PLACES, "head.bias", "head"),
        (NORMS, "backbone.1.layers.0.linear1.weight", "norms"),
        (NORMS, "head.bias", "head"),
        (RATES, "backbone.1.layers.0.linear1.weight", "backbone decay"),
        (RATES, "backbone.1.layers.0.linear1.bias", "backbone no decay"),
        (RATES, "head.bias", "head"),
        ([optimizer_case("only", lambda n, p: n == "head.weight")], "backbone.0.bias", "only"),
    ],
)
def test_the_nearest_group(groups: list[tuple[str, Test, dict[str, float]]], orphan: str, expected: str) -> None:
    model = encoder()
    tree = build([("model", model)])
    named = dict(model.named_parameters())
    made: list[dict[str, Any]] = [
        {"params": [p for n, p in named.items() if n != orphan and test(n, p)], "tag": name, **options}
        for name, test, options in groups
    ]
    optimizer = torch.optim.SGD([one for one in made if one["params"]], lr=0.1)
    index = next(index for index, info in enumerate(tree.parameters) if info.path == orphan)
    (planned,) = membership.plan({index: named[orphan]}, tree, [optimizer])
    assert planned.group["tag"] == expected
    # Planning changes nothing.
    assert all(tensor is not named[orphan] for tensor in membership.parameters(optimizer))


def test_groups_outside_of_models_are_last_choice() -> None:
    model = nn.Linear(4, 2)
    tree = build([("model", model)])
    strangers = torch.optim.SGD([nn.Parameter(torch.zeros(9, 9)) for _ in range(9)], lr=0.1)
    own = torch.optim.SGD([model.bias], lr=0.1)
    (planned,) = membership.plan({0: model.weight}, tree, [strangers, own])
    assert planned.optimizer is own
    (planned,) = membership.plan({0: model.weight}, tree, [strangers])
    assert planned.optimizer is strangers
    assert membership.plan({0: model.weight}, tree, []) == []


def test_wrapping_optimizer_shares_groups_with_one_entry() -> None:
    model = stack()
    inner = torch.optim.SGD(model[2].parameters(), lr=0.1)
    outer = torch.optim.SGD(inner.param_groups, lr=0.1)
    tree = build([("model", model)])
    join(membership.plan({0: model[0].weight}, tree, [outer, inner]))
    assert len(inner.param_groups[0]["params"]) == len(outer.param_groups[0]["params"]) == 2


def test_unfreezing_a_large_encoder_is_quick() -> None:
    import time

    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(3_000)))
    tree = build([("model", model)])
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters[:3_000], lr=0.1)
    orphans = dict(enumerate(parameters[3_000:], 3_000))
    began = time.thread_time()
    join(membership.plan(orphans, tree, [optimizer]))
    assert time.thread_time() - began < 0.5
    assert len(optimizer.param_groups[0]["params"]) == 6_000


# ---- named parameters


@pytest.mark.skipif(TORCH < (2, 6), reason="torch before 2.6 takes no named parameters")
def test_named_parameters_keep_names_of_script() -> None:
    """The tree puts the model's name in front; the script's own names have none."""
    body, head = stack(), nn.Linear(4, 1)
    body[0].requires_grad_(False)
    with watched() as seen:
        first = torch.optim.SGD([(n, p) for n, p in body.named_parameters() if p.requires_grad], lr=0.1)
        second = torch.optim.SGD(list(head.named_parameters()), lr=0.1)
        for _ in seen.steps(4, {1: unfreeze("Sequential.0")}):
            first.zero_grad()
            second.zero_grad()
            head(body(X)).square().mean().backward()
            first.step()
            second.step()
    assert "; 1 joined SGD, whose" in only_answer(seen)
    assert first.param_groups[0]["param_names"] == ["1.weight", "2.weight", "0.weight"]
    assert second.param_groups[0]["param_names"] == ["weight", "bias"]
    assert first.state_dict()["param_groups"][0]["param_names"][-1] == "0.weight"


# ---- schedulers


# ---- what is told of optimizers


def test_groups_that_the_script_adds_itself_are_told() -> None:
    """Gradual unfreezing, as fine-tuning guides have it."""
    model = stack()
    model[:2].requires_grad_(False)
    with watched() as seen:
        optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
        for number in range(6):
            if number in (2, 4):
                layer = model[1 if number == 2 else 0]
                layer.requires_grad_(True)
                optimizer.add_param_group({"params": layer.parameters(), "lr": 0.01})
            step(model, optimizer)
    found = [(event.optimizers[0].groups, event.optimizers[0].parameters) for event in seen.all(OptimizersFound)]
    assert found == [(1, (2,)), (2, (2, 1)), (3, (2, 1, 0))]
    assert seen.letters() == {"0.weight": "T", "1.weight": "T", "2.weight": "T"}


# ---- hypothesis: any sequence of toggles of any parameters is the same script

Toggle = tuple[int, int, bool]
"""(step, layer, trainable)."""


class Script:
    """Three layers, some of them frozen at first: those belong to no optimizer."""

    def __init__(self, name: str, frozen: set[int]) -> None:
        self.model = stack()
        for layer in frozen:
            self.model[layer].requires_grad_(False)
        self.optimizer = VARIANTS[name]([p for p in self.model.parameters() if p.requires_grad])
        self._first = {layer: 99 if layer in frozen else -1 for layer in range(3)}
        """When each layer was trainable first."""
        self._passes: set[int] = set()
        """The frozen layers through which the latest gradient has passed on to one below: unfrozen, they will have one."""

    def train(self, at: Callable[[int], object], *, to_none: bool) -> list[list[float]]:
        for number in range(8):
            at(number)
            self.optimizer.zero_grad(set_to_none=to_none)
            self.model(X).square().mean().backward()
            self.optimizer.step()
            trains = [p.requires_grad for p in self.model.parameters()]
            self._passes = {layer for layer in range(3) if not trains[layer] and any(trains[:layer])}
        return bits(self.model)

    def toggle(self, number: int, layer: int, trainable: bool) -> None:
        """What a careful person writes; it never freezes the last layer that has trained."""
        weight: nn.Parameter = self.model[layer].weight  # type: ignore[assignment]
        left = [
            p
            for i, p in enumerate(self.model.parameters())
            if i != layer and p.requires_grad and self._first[i] < number
        ]
        if weight.requires_grad == trainable or not (trainable or left):
            return
        weight.requires_grad_(trainable)
        weight.grad = None
        self._first[layer] = min(self._first[layer], number - (layer in self._passes))
        self._passes.discard(layer)
        own = self.optimizer.param_groups[0]["params"]
        if all(weight is not other for other in own):
            own.append(weight)


@settings(max_examples=examples(10))
@given(
    st.sampled_from(["SGD", "momentum", "Adam", "AdamW", "RMSprop", "started Adagrad", "fused Adam", "Rprop"]),
    st.booleans(),
    st.sets(st.integers(0, 2), max_size=2),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2), st.booleans()), max_size=8),
)
def test_any_toggles_are_the_same_script(name: str, to_none: bool, frozen: set[int], toggles: list[Toggle]) -> None:
    toggles.sort(key=lambda toggle: toggle[0])

    def now(number: int) -> list[tuple[int, bool]]:
        return [(layer, trainable) for at, layer, trainable in toggles if at == number]

    edited = Script(name, frozen)
    expected = edited.train(lambda number: [edited.toggle(number, *toggle) for toggle in now(number)], to_none=to_none)
    with watched() as seen:
        script = Script(name, frozen)

        def ask(number: int) -> None:
            for layer, trainable in now(number):
                seen.submit(unfreeze(str(layer)) if trainable else freeze(str(layer)))

        assert script.train(ask, to_none=to_none) == expected
    assert [p.requires_grad for p in script.model.parameters()] == [p.requires_grad for p in edited.model.parameters()]
    answers = [event.command.id for event in seen.events if isinstance(event, (CommandApplied, CommandRejected))]
    assert answers == list(range(1, len(toggles) + 1))
    assert all(event.moved == () for event in seen.all(FreezeVerified))
