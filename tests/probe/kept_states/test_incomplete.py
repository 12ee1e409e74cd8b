"""What a copy cannot have: refused with the reason, or copied after all."""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.keeping_runs import Run, trained
from helpers.watched import Watched, watched
from torch import nn
from torch.optim import SGD
from torch.optim.swa_utils import AveragedModel

from gradtui.probe.kept_states import CopyDetails, IncompleteCopyError, KeptStates, RunCopy
from gradtui.probe.runtime import ranks
from gradtui.protocol import events as ev
from gradtui.protocol.agreement import Proposal
from gradtui.protocol.commands import Command, KeepState, ReturnToState, SetTrainable
from gradtui.protocol.keep_limit import KeepLimit
from gradtui.run.text import refusals

safe_open = pytest.importorskip("safetensors").safe_open
Make = Callable[[int], Command]


def reasons(run: Run, at: dict[int, list[Make]]) -> list[str]:
    return [each.reason for each in trained(run, at)[0].all(ev.CommandRejected)]


class Lookahead(SGD):
    """An optimizer that keeps tensors beside its state."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, 0.1, momentum=0.9)
        self.slow = [each.detach().clone() for each in self.param_groups[0]["params"]]
        self.count, self.by_name = torch.zeros(()), {"norm": torch.zeros(2)}

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        self.count.add_(1)
        self.by_name["norm"].add_(0.5)
        for slow, fast in zip(self.slow, self.param_groups[0]["params"]):
            slow.lerp_(fast.detach(), 0.5)
            fast.data.copy_(slow)


def test_tensors_beside_optimizer_state_come_back() -> None:
    run = Run(Lookahead)
    kept: list[Any] = []
    optimizer: Any = run.optimizer

    def values() -> list[Any]:
        return [*(each.tolist() for each in optimizer.slow), optimizer.count.item(), optimizer.by_name["norm"].tolist()]

    with watched() as seen:
        for step in range(8):
            if step == 3:
                seen.submit(KeepState)
                kept = values()
            if step == 7:
                seen.submit(ReturnToState)
                before, held = values(), optimizer.slow[0]
                optimizer.step = lambda: None
            run.step()
    (back,) = seen.all(ev.ReturnedToState)
    assert not back.differing
    assert before != kept == values()
    assert optimizer.slow[0] is held


def averaged(file: Path) -> tuple[Watched, list[list[Any]]]:
    """Train with averages; return the values of those and of another module before the keep, and after the return.

    Without an assertion: pytest makes it a function that reads its own variables, where gradtui looks for nothing.
    """
    run = Run()
    average, frozen_copy, other = AveragedModel(run.model), copy.deepcopy(run.model), nn.Linear(3, 3)

    def values() -> list[Any]:
        return [each.tolist() for module in (average, frozen_copy, other) for each in module.state_dict().values()]

    found = []
    with watched() as seen:
        for step in range(8):
            if step == 3:
                seen.submit(KeepState)
                seen.submit(lambda number: KeepState(number, file=str(file)))
                found.append(values())
            if step == 7:
                seen.submit(ReturnToState)
                with torch.no_grad():
                    other.weight.fill_(7)
                    frozen_copy.head.weight.fill_(7)
            run.step()
            if step < 7:
                average.update_parameters(run.model)
    return seen, [*found, values()]


def test_uncalled_averages_come_back_too(tmp_path: Path) -> None:
    file = tmp_path / "x"
    seen, (kept, returned) = averaged(file)
    (back,) = seen.all(ev.ReturnedToState)
    assert not back.differing
    assert returned[:-2] == kept[:-2]
    # This one is no copy of a model: nothing says that it belongs to the run.
    assert returned[-2] == [[7.0] * 3] * 3
    with safe_open(file, "pt") as opened:
        found = json.loads(opened.metadata()["state"])["models"]
    assert [*found] == ["model", "average", "frozen_copy"]
    assert "module.head.weight" in found["average"]


class Average:
    """An average of the weights by hand: new tensors at each step, in a dictionary."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: each.detach().clone() for name, each in model.named_parameters() if each.requires_grad}

    def update(self, model: nn.Module) -> None:
        for name, each in model.named_parameters():
            if name in self.shadow:
                self.shadow[name] = 0.9 * self.shadow[name] + 0.1 * each.detach()


@dataclasses.dataclass(slots=True)
class Slots:
    average: Average


def held(make: Callable[[nn.Module], tuple[Any, Callable[[], list[torch.Tensor]], Callable[[], object]]]) -> Any:
    """Train with something that the script holds; return its values at the keep, at the return, and after it."""
    run = Run()
    keeper, tensors, update = make(run.model)
    found = []
    with watched() as seen:
        for step in seen.steps(8, {3: KeepState, 7: ReturnToState}):
            if step in (3, 7):
                found.append([each.tolist() for each in tensors()])
            run.step()
            if step < 7:
                update()
    del keeper
    return seen, [*found, [each.tolist() for each in tensors()]]


def with_averages(model: nn.Module, where: str) -> tuple[Any, Any, Any]:
    average, copied = Average(model), copy.deepcopy(model)

    def update() -> None:
        average.update(model)
        with torch.no_grad():
            for own, each in zip(copied.parameters(), model.parameters()):
                own.lerp_(each, 0.1)

    keepers = {
        "object": average, "dict": {"ema": {"shadow": average.shadow}}, "slots": Slots(average),
        "namespace": SimpleNamespace(states=[average.shadow]), "module": {"model": [copied]},
    }  # fmt: skip
    of_module = where == "module"
    return keepers[where], lambda: [*(copied.parameters() if of_module else average.shadow.values())], update


@pytest.mark.parametrize("where", ["object", "dict", "slots", "namespace", "module"])
def test_average_comes_back_wherever_script_has_it(where: str) -> None:
    seen, (kept, before, returned) = held(lambda model: with_averages(model, where))
    (back,) = seen.all(ev.ReturnedToState)
    assert not back.differing
    assert before != kept == returned


def test_weights_themselves_in_dictionary_are_copied_once() -> None:
    def own(model: nn.Module) -> tuple[Any, Any, Any]:
        # As scripts keep them by mistake.
        best, parameters = model.state_dict(), list(model.parameters())
        return (best, parameters), lambda: parameters, lambda: None

    (plain, _), (seen, _) = held(lambda model: (None, list, lambda: None)), held(own)
    assert plain.all(ev.StateKept)[0].bytes == seen.all(ev.StateKept)[0].bytes


class Momentum:
    """An optimizer of the script's own: it is none of torch's."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = list(parameters)
        self.moments = [torch.zeros_like(each) for each in self.parameters]
        self.count = 0

    def zero_grad(self) -> None:
        for each in self.parameters:
            each.grad = None

    def step(self) -> None:
        self.count += 1


class Both:
    """Steps two optimizers of torch."""

    def __init__(self, *optimizers: Any) -> None:
        self.optimizers, self.factor = list(optimizers), torch.ones(())

    def zero_grad(self) -> None:
        """Clear the gradients."""

    def step(self) -> None:
        """Step both."""


def test_foreign_optimizer_is_refused_by_name() -> None:
    seen, _ = held(lambda model: ({"state": [Momentum(model.head.parameters())]}, list, lambda: None))
    refused = seen.refusals()
    assert refused[0] == refusals.state_is_its_own("keeper['state'][0]", "Momentum")
    seen, _ = held(lambda model: (Both(SGD(model.head.parameters(), 0.1)), list, lambda: None))
    assert seen.all(ev.CommandRejected) == []


class Holder:
    """A state that only its own code can copy."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(2)


def test_object_of_scripts_own_with_tensors_is_named() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = SGD([parameter], 0.1)
    optimizer.state[parameter]["history"] = Holder()
    with pytest.raises(IncompleteCopyError, match="a value of type Holder has tensors that only its own code can copy"):
        RunCopy([], [optimizer], [])


def test_tensor_without_values_is_refused_before_copying() -> None:
    run = Run()
    run.model.register_buffer("offloaded", torch.empty(2, device="meta"))
    (reason,) = reasons(run, {4: [KeepState]})
    assert reason == (refusals.incomplete_state("tensors on the device meta have no values: they are offloaded"))


def test_deepspeed_keeps_its_state_elsewhere() -> None:
    run = Run()
    run.model.engine = type("DeepSpeedEngine", (nn.Module,), {})()
    (reason,) = reasons(run, {4: [KeepState]})
    assert reason == refusals.state_is_elsewhere("DeepSpeedEngine")


def test_compiled_graph_replay_is_refused_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    def trees(manager: object) -> SimpleNamespace:
        return SimpleNamespace(
            local=SimpleNamespace(tree_manager_containers={0: SimpleNamespace(tree_manager=manager)})
        )

    monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", trees(None))
    assert reasons(Run(), {4: [KeepState], 6: [ReturnToState]}) == []
    run = Run()
    with watched() as seen:
        for step in range(8):
            if step == 5:
                monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", trees(object()))
            if step == 3:
                seen.submit(KeepState)
            if step == 6:
                seen.submit(KeepState)
                seen.submit(ReturnToState)
                seen.submit(lambda number: SetTrainable(number, "head", False))
            run.step()
    assert seen.refusals() == [refusals.REPLAYS_COMPILED] * 2
    assert len(seen.all(ev.StateKept)) == 1


def answered(run: Run, command: Command, limit: KeepLimit, at: int = 4) -> list[ev.ProposalAnswered]:
    with watched() as seen:
        seen.probe.dispatcher.keeping.states.limit = limit
        for _ in seen.steps(8, {at: lambda _: Proposal(1, command, 7)}):
            run.step()
    return seen.all(ev.ProposalAnswered)


def test_rank_without_memory_refuses_proposal(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradtui.probe.commands.boundary import agreement

    class Store:
        given_up = None

        def write_once(self, name: str, value: str) -> Any:
            from concurrent.futures import Future

            done: Future[str] = Future()
            done.set_result("")
            return done

    monkeypatch.setattr(agreement.Agreement.__init__, "__defaults__", (Store(), lambda _: None))
    (answer,) = answered(Run(), KeepState(5), KeepLimit(bytes=10))
    assert not answer.accepts
    assert " KiB, " in answer.reason
    assert " 10 B " in answer.reason
    (answer,) = answered(Run(), KeepState(5), KeepLimit())
    assert (answer.accepts, answer.reason) == (False, refusals.KEEPS_NONE)
    (answer,) = answered(Run(), KeepState(5, file="x"), KeepLimit())
    assert answer.accepts
    (answer,) = answered(Run(), KeepState(5), KeepLimit(share=0.1))
    assert answer.accepts


def test_copy_of_dropped_weights_prevents_no_return() -> None:
    model, average, best = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
    copied = RunCopy([model, average, best], [], [], CopyDetails(spare=2))
    weight = model.weight.tolist(), average.weight.tolist()
    with torch.no_grad():
        model.weight.fill_(3)
        average.weight.fill_(3)
    average.bias = nn.Parameter(torch.zeros(5))
    del best
    assert copied.objection() is None
    copied.write()
    assert copied.differing() == []
    assert (model.weight.tolist(), average.weight.tolist()) == weight
    del model
    assert copied.objection() == "a model of that step is gone"


def test_ranks_of_one_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    states = KeptStates(KeepLimit(share=0.5))
    alone = states.room
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert states.room == pytest.approx(alone, rel=0.1)
    monkeypatch.setattr(ranks, "world_size", lambda: 8)
    assert states.room == pytest.approx(alone / 4, rel=0.1)


def test_numbers_count_attempts_so_that_ranks_count_alike() -> None:
    states = KeptStates()
    made = RunCopy([nn.Linear(1, 1)], [], [])
    states.take_number()
    assert states.add(3, made, (), automatic=False).number == 2


def test_setting_off_keeps_nothing_and_names_way_out() -> None:
    run = Run()
    with watched() as seen:
        seen.probe.dispatcher.keeping.states.limit = KeepLimit()
        for step in range(6):
            if step == 3:
                seen.submit(lambda number: SetTrainable(number, "head", False))
                seen.submit(KeepState)
            run.step()
    assert not seen.all(ev.StateKept)
    assert seen.refusals() == [refusals.KEEPS_NONE]
