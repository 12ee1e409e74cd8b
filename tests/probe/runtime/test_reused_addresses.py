"""Nothing that is known of a freed object is believed of another one at its address."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers.addresses import addresses
from helpers.watched import CountingAllocator, watched
from torch import Tensor, nn

from gradtui.probe.autograd import recomputation
from gradtui.probe.autograd.gradient_flow import GraphsOfStep
from gradtui.probe.autograd.graph_summary import GraphSummary, KnownTensors
from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog, ModuleCallLogger
from gradtui.probe.autograd.recomputation import Recomputation
from gradtui.probe.memory.memory_breakdown import MemoryAccountant
from gradtui.probe.model.tree_builder import build
from gradtui.probe.runtime.by_identity import ByIdentity
from gradtui.probe.steps.eval_detection import EvalDetector
from gradtui.protocol.events import NonFiniteFound

X = torch.linspace(-1, 1, 24).view(6, 4)
At = Callable[[int, Any], Any]


@pytest.fixture
def at() -> Iterator[At]:
    with addresses() as give:
        yield give


class Bare(nn.Module):
    """Without parameters or children: nothing else is made with it."""


def test_a_value_belongs_to_one_object(at: At) -> None:
    known: ByIdentity[nn.Module, str] = ByIdentity()
    first = Bare()
    known.set(first, "first")
    assert (known.get(first), list(known.living())) == ("first", [first])
    address = id(first)
    del first
    second = at(address, Bare())
    assert (known.get(second), list(known.living())) == (None, [])
    known.discard(second)
    known.set(second, "second")
    assert known.get(second) == "second"
    known.discard(second)
    assert known.get(second) is None


def test_what_was_freed_does_not_pile_up() -> None:
    known: ByIdentity[nn.Module, int] = ByIdentity()
    kept = [Bare() for _ in range(100)]
    for number, module in enumerate(kept):
        known.set(module, number)
    for _ in range(20):
        freed = [Bare() for _ in range(100)]
        for module in freed:
            known.set(module, -1)
    del freed, module
    # At most twice as many as there were when dead entries were removed last: 100 that live, 100 of one round, one new.
    assert len(known._known) <= 2 * 201
    assert [known.get(module) for module in kept] == [*range(100)]


@pytest.mark.parametrize("is_within", [True, False])
def test_that_a_model_trains_in_eval_mode(is_within: bool, at: At) -> None:
    guess = EvalDetector()
    model = Bare().eval()
    guess.began(model, 0)
    if not is_within:
        guess.ended(model, 1)
    guess.backward(2)
    assert not guess.is_evaluation(model)
    address = id(model)
    del model
    assert guess.is_evaluation(at(address, Bare()).eval())


def test_freed_model_was_called_before_backward(at: At) -> None:
    guess = EvalDetector()
    model = Bare().eval()
    guess.began(model, 0)
    guess.ended(model, 3)
    address = id(model)
    del model
    other = at(address, Bare()).eval()
    assert guess.backward(5) == 3
    assert guess.is_evaluation(other)


def test_the_place_of_a_module(at: At) -> None:
    model = nn.Sequential(Bare(), nn.Linear(2, 2))
    tree, tracer = build([("model", model)]), ModuleCallLogger()
    assert [tree.index_of(module) for module in model.modules()] == [0, 1, 2]
    address = id(model[0])
    model[0] = nn.Identity()
    other = at(address, Bare())
    assert tree.index_of(other) == OUTSIDE
    trace = tracer.begin(tree.module_index)
    tracer.entered(0, other)
    assert trace.now == OUTSIDE


@pytest.mark.parametrize("kind", ["parameter", "module"])
def test_model_holds_what_was_listed_finally(kind: str, at: At) -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), Bare())
    tree = build([("model", model)])
    assert tree.is_current(freed=True)
    if kind == "parameter":
        address = id(model[0].weight)
        model[0].weight = None
        model[0].weight = at(address, nn.Parameter(torch.zeros(2, 2)))
    else:
        address = id(model[1])
        del model[1]
        model.add_module("1", at(address, Bare()))
    assert not tree.is_current(freed=True)


def test_the_bytes_of_an_optimizers_state(at: At) -> None:
    def optimizer(elements: int) -> torch.optim.Optimizer:
        parameter = nn.Parameter(torch.zeros(elements))
        made = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
        made.state[parameter] = {"momentum_buffer": torch.zeros(elements)}
        return made

    ledger, tree = MemoryAccountant(CountingAllocator()), build([("model", Bare())])
    first = optimizer(10)
    assert ledger.take(tree, [first], stepped=True)[0].optimizer_state == 4 * 10
    assert ledger.take(tree, [first], stepped=False)[0].optimizer_state == 4 * 10
    address = id(first)
    del first
    gc.collect()
    other = at(address, optimizer(1000))
    assert ledger.take(tree, [other], stepped=False)[0].optimizer_state == 4 * 1000


class Frame:
    """As torch's frame of a checkpointed region; the next tensor is saved in place of `holder`."""

    def __init__(self, holder: object = None) -> None:
        self.holder = holder


class Holder:
    """As what torch has in place of a saved tensor."""


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> tuple[Recomputation, GraphSummary]:
    monkeypatch.setattr(recomputation, "next_holder", lambda frame, _: frame.holder)
    heard, facts = Recomputation(lambda _: None), GraphSummary()
    heard.expect(facts, KnownTensors({}, {}), ModuleCallLog(), GraphsOfStep())
    return heard, facts


def test_in_whose_place_a_tensor_is_saved_anew(heard: tuple[Recomputation, GraphSummary], at: At) -> None:
    listens, facts = heard
    holder = Holder()
    facts.regions.holders.set(holder, 3)
    listens.saved(torch.zeros(5), Frame(holder), None)
    assert facts.regions.recomputed == {3: 4 * 5}
    address = id(holder)
    del holder
    # That of a region within the region, which is made while that is computed again.
    listens.saved(torch.zeros(7), Frame(at(address, Holder())), None)
    assert facts.regions.recomputed == {3: 4 * 5}


def test_what_a_region_has_saved_anew(heard: tuple[Recomputation, GraphSummary], at: At) -> None:
    listens, facts = heard
    holder, saved = Holder(), torch.zeros(5)
    facts.regions.holders.set(holder, 3)
    frame = Frame(holder)
    listens.saved(saved, frame, None)
    listens.saved(saved, frame, None)
    assert facts.regions.recomputed == {3: 4 * 5}
    address = id(frame)
    del frame
    listens.saved(saved, at(address, Frame(holder)), None)
    assert facts.regions.recomputed == {3: 2 * 4 * 5}


def test_non_finite_ends_where_optimizer_is_freed() -> None:
    def step(optimizer: torch.optim.Optimizer, factor: float) -> None:
        optimizer.zero_grad()
        (model(X).square().mean() * factor).backward()
        optimizer.step()

    nan, model = float("nan"), nn.Linear(4, 2)
    with watched() as seen:
        first = torch.optim.SGD(model.parameters(), lr=0.0)
        step(first, 1.0)
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        step(first, nan)
        model.load_state_dict(weights)
        address = weakref.ref(first)
        del first
        gc.collect()
        assert address() is None
        second = torch.optim.AdamW(model.parameters(), lr=0.0)
        step(second, 1.0)
        step(second, nan)
    assert [event.step for event in seen.all(NonFiniteFound)] == [2, 4]


def test_how_often_a_wrapper_was_made_anew(at: At) -> None:
    """Around a parameter that lives on and one that dies with the wrapper; in each wrapper the latter is another one."""
    from gradtui.probe.model.discovery import Discovery

    class Around(nn.Module):
        def __init__(self, inner: nn.Parameter, own: nn.Parameter) -> None:
            super().__init__()
            self.inner, self.own = inner, own

    discovery, trained = Discovery(), nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([trained], lr=0.1)
    discovery.register_optimizer(optimizer)
    address = 0
    for number in range(3):
        own = at(address, nn.Parameter(torch.zeros(3))) if address else nn.Parameter(torch.zeros(3))
        wrapper = Around(trained, own)
        address = id(own)
        discovery.on_root_call(wrapper)
        assert [root for _, root in discovery.models()] == [wrapper], number
        del wrapper, own
        gc.collect()
        discovery.models()


def test_that_script_has_left_group_as_it_was(at: At) -> None:
    from gradtui.probe.model.added_parameters import AddedParameters

    def parameter() -> nn.Parameter:
        return nn.Parameter(torch.zeros(2))

    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    tree, orphan = build([("model", model)]), model[1].weight
    optimizer = torch.optim.SGD([model[0].weight, parameter()], lr=0.1)
    joined = AddedParameters(lambda: [optimizer])
    with joined.joining(joined.plan({1: orphan}, tree, [optimizer]), 1):
        pass
    members = optimizer.param_groups[0]["params"]
    assert joined.holds(orphan)
    address = id(members[1])
    del members[1]
    members.insert(1, at(address, parameter()))
    left = joined.leave([orphan], 2)
    assert (left.out, left.stayed) == ({}, {"SGD": 1})


def test_replaced_buffer_is_one_from_that_time() -> None:
    """Each forward doubles `factor`, and backward needs the one that its own forward had: d(sum(f·x·w))/dw = f·sum(x)."""
    from gradtui.probe.activation_checkpointing.recomputed_state import SMALL, RecomputedState, moved_buffers

    class Doubling(nn.Module):
        factor: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("factor", torch.ones(SMALL))

        def forward(self, x: Tensor) -> Tensor:
            self.factor = 2 * self.factor
            return x * self.factor[0]

    module = nn.Sequential(Doubling())
    moved = moved_buffers(module)
    module(torch.ones(1))
    moving = moved()
    assert moving == {"0.factor"}
    state = RecomputedState(module, moving)
    assert float(module(torch.ones(1))) == 4.0
    assert float(module(torch.ones(1))) == 8.0
    with state:
        assert float(module(torch.ones(1))) == 4.0
    assert float(module[0].factor[0]) == 8.0
