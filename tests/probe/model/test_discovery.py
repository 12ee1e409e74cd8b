"""Finding models and optimizers in scripts that know nothing of us, and noticing when they are no longer what they were."""

from __future__ import annotations

import copy
import gc
import io
import sys
import time
import types
import weakref
from collections.abc import Iterator

import pytest
import torch
from helpers import loops
from helpers.programs import run_program
from helpers.summaries import summarised
from helpers.training import loss_steps, square_steps
from helpers.watched import Watched, watched
from torch import Tensor, nn
from zoo import SPECIMENS

from gradtui.probe.model import model_registry, optimizer_registry
from gradtui.probe.model.discovery import Discovery
from gradtui.probe.model.tree_builder import build
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.events import CommandApplied, ModelsFound, OptimizersFound

X = torch.linspace(-1, 1, 24).view(6, 4)


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))


class Prompted(nn.Module):
    """CoOp, without what makes its prompt long: the encoders of a pair move into it."""

    def __init__(self, pair: nn.Module) -> None:
        super().__init__()
        self.prompt = nn.Parameter(torch.zeros(4))
        self.text, self.image = pair.text, pair.image

    def forward(self, x: Tensor) -> Tensor:
        return self.text(x + self.prompt) + self.image(x)


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int = 1) -> None:
    square_steps(model, optimizer, X, count)


def found(seen: Watched) -> list[tuple[str, str]]:
    return [(model.name, model.type_name) for model in seen.state.tree.models]


def paths(seen: Watched) -> list[str]:
    return [info.path for info in seen.state.tree.parameters]


class Wrapper(nn.Module):
    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.children():
            x = part(x)
        return x


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A `__main__` of the test's own."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def test_model_has_name_of_scripts_variable(main: types.ModuleType) -> None:
    main.net = small()
    with watched() as seen:
        steps(main.net, torch.optim.SGD(main.net.parameters(), lr=0.1))
    assert found(seen) == [("net", "Sequential")]
    # With one model the paths need no prefix.
    assert paths(seen) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_model_without_variable_has_name_of_its_class(main: types.ModuleType) -> None:
    main._hidden = model = small()
    with watched() as seen:
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert found(seen) == [("Sequential", "Sequential")]


def test_outermost_module_is_model_despite_inner_call() -> None:
    """As a LightningModule, whose own forward never runs."""
    inner = small()
    outer = Wrapper(inner=inner, head=nn.Linear(2, 1))
    with watched() as seen:
        steps(inner, torch.optim.SGD(outer.parameters(), lr=0.1), 2)
    assert found(seen) == [("Wrapper", "Wrapper")]
    assert paths(seen)[-1] == "head.bias"
    assert seen.letters()["head.weight"] == "U"
    assert seen.letters()["inner.0.weight"] == "T"


def test_wrapped_parts_are_no_separate_models() -> None:
    """The second stage of CoOp: the pair that was trained first goes on inside the prompt learner."""
    pair = Wrapper(text=nn.Linear(4, 4), image=nn.Linear(4, 4))
    with watched() as seen:
        steps(pair, torch.optim.SGD(pair.parameters(), lr=0.1), 2)
        pair.requires_grad_(False)
        model = Prompted(pair)
        steps(model, torch.optim.SGD([model.prompt], lr=0.1), 2)
    assert found(seen) == [("Prompted", "Prompted")]
    assert seen.letters() == {
        "prompt": "T", "text.weight": "F", "text.bias": "F", "image.weight": "C", "image.bias": "C",
    }  # fmt: skip


def test_two_models_have_prefixed_paths(main: types.ModuleType) -> None:
    main.generator, main.critic = small(), nn.Linear(2, 1)
    with watched() as seen:
        g = torch.optim.Adam(main.generator.parameters())
        d = torch.optim.Adam(main.critic.parameters())
        main.critic(main.generator(X)).mean().backward()
        d.step()
        g.step()
    assert sorted(found(seen)) == [("critic", "Linear"), ("generator", "Sequential")]
    assert {path.partition(".")[0] for path in paths(seen)} == {"generator", "critic"}
    first, second = seen.all(OptimizersFound)[-1].optimizers
    owned = [{paths(seen)[index].partition(".")[0] for index in info.parameters} for info in (first, second)]
    assert owned == [{"generator"}, {"critic"}]


def test_models_of_same_class_have_different_names() -> None:
    one, two = small(), small()
    with watched() as seen:
        optimizer = torch.optim.SGD([*one.parameters(), *two.parameters()], lr=0.1)
        two(one(X)[:, [0, 1, 0, 1]]).mean().backward()
        optimizer.step()
    assert [name for name, _ in found(seen)] == ["Sequential", "Sequential_2"]


def test_folds_replace_each_other_and_are_freed() -> None:
    with watched() as seen:
        for _ in range(4):
            model = small()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            steps(model, optimizer, 3)
            del model, optimizer
            gc.collect()
    trees = seen.all(ModelsFound)
    assert all(len(tree.models) == 1 for tree in trees)
    assert len(trees) == 4
    assert set(seen.letters().values()) == {"T"}
    assert (seen.state.step, seen.state.optimizer_steps) == (12, [3, 3, 3, 3])
    assert [info.type_name for info in seen.state.optimizers] == ["SGD"] * 4


def test_fold_beside_kept_model_of_last() -> None:
    kept = []
    with watched() as seen:
        for _ in range(3):
            model = small()
            steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 2)
            kept.append(model)
    assert len(seen.state.tree.models) == 3
    assert seen.state.step == 6


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Grows by one whenever all objects of the process are looked at."""
    calls: list[int] = []
    real = gc.get_objects

    def counted(*arguments: object) -> list[object]:
        calls.append(1)
        return real(*arguments)

    monkeypatch.setattr(gc, "get_objects", counted)
    return calls


def test_new_criterion_each_step_causes_no_search(searches: list[int]) -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss_steps(optimizer, lambda: nn.MSELoss()(model(X), torch.zeros(6, 2)), 50)
    assert len(searches) <= 2
    assert seen.state.step == 50


def test_novelty_each_step_causes_few_searches(searches: list[int]) -> None:
    """Meta-learning: a fresh copy and a fresh optimizer for each task. Searches keep to their share of the time."""
    model = small()
    with watched() as seen:
        seen.probe.view._searched_ns = model_registry._SEARCH_NS - 1
        for _ in range(100):
            learner = copy.deepcopy(model)
            steps(learner, torch.optim.SGD(learner.parameters(), lr=0.1))
    assert len(searches) < 20
    assert seen.state.step == 100
    # Each optimizer has a row of its own.
    assert seen.state.optimizer_steps == [1] * 100
    assert [info.freed for info in seen.state.optimizers[:-2]] == [True] * 98


def test_an_adapter_that_is_added_later_is_found() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps(model, optimizer, 2)
        model.append(nn.Linear(2, 2))
        optimizer.add_param_group({"params": model[3].parameters()})
        steps(model, optimizer, 2)
        model[0] = nn.Linear(4, 4)
        # The optimizer has tensors of no module: first it must be clear that the script moves nothing itself.
        steps(model, optimizer, 4)
    assert [len(event.parameters) for event in seen.all(ModelsFound)] == [4, 6, 6]
    assert seen.letters()["3.weight"] == "T"
    assert seen.letters()["0.weight"] == "O"


def test_a_parameter_that_is_replaced_is_found() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps(model, optimizer, 2)
        model[2] = model[2].to(torch.float64).to(torch.float32)
        model[0].weight = nn.Parameter(torch.zeros(4, 4))
        steps(model, optimizer, 2)
        assert len(seen.all(ModelsFound)) == 2
        model.to(torch.float64)
        model(X.double()).mean().backward()
        optimizer.step()
        model(X.double()).mean().backward()
    assert {info.dtype for info in seen.state.tree.parameters} == {"float64"}


def test_lazy_parameters_get_their_shapes() -> None:
    specimen = SPECIMENS["lazy"]()
    with watched() as seen:
        loops.plain(specimen.model, specimen.batch, specimen.loss, 3)
    assert all(info.count > 0 and info.shape for info in seen.state.tree.parameters)


def test_a_wrapper_whose_replicas_run_in_threads() -> None:
    """As nn.DataParallel on several devices."""
    import threading

    class Parallel(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Tensor) -> Tensor:
            halves: list[Tensor] = [x, x]

            def run(index: int, part: Tensor) -> None:
                halves[index] = self.module(part)

            threads = [threading.Thread(target=run, args=(i, part)) for i, part in enumerate(x.chunk(2))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return torch.cat(halves)

    model = Parallel(small())
    with watched() as seen:
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 3)
    assert found(seen) == [("Parallel", "Parallel")]
    step = ["forward", "backward", "other", "optimizer", "data"]
    assert seen.phases == ["load", "zero_grad", "load", *step, *["zero_grad", "data", *step] * 2]
    assert set(seen.letters().values()) == {"T"}


def test_placeholder_parameters_are_not_listed() -> None:
    """`functional_call` puts other tensors in the parameters' places for the time of one call."""
    from torch.func import functional_call

    model = small()
    fast = {name: (parameter * 1.0) for name, parameter in model.named_parameters()}
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            fast = {name: parameter * 0.5 for name, parameter in model.named_parameters()}
            functional_call(model, fast, (X,)).square().mean().backward()
            optimizer.step()
    assert len(seen.all(ModelsFound)) == 1
    assert set(seen.letters().values()) == {"T"}


def test_optimizers_keep_their_place_when_freed() -> None:
    model = small()
    with watched() as seen:
        first = torch.optim.SGD(model.parameters(), lr=0.1)
        steps(model, first, 2)
        del first
        gc.collect()
        steps(model, torch.optim.Adam(model.parameters()), 3)
    infos = seen.state.optimizers
    assert [(info.type_name, len(info.parameters), info.unknown_parameters) for info in infos] == [
        ("SGD", 0, 4), ("Adam", 4, 0),
    ]  # fmt: skip
    assert seen.state.optimizer_steps == [2, 3]


def test_optimizer_before_probe_is_found_at_step() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        steps(model, optimizer, 2)
    assert seen.state.optimizer_steps == [2]
    assert len(seen.state.optimizers[0].parameters) == 4


def test_reused_id_is_not_mistaken() -> None:
    tree = build([("m", nn.Linear(2, 2))])
    gc.collect()
    stranger = nn.Parameter(torch.zeros(2))
    tree.parameter_index[id(stranger)] = 0
    assert tree.owns(stranger) is None


def test_freed_place_is_reused_only_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_registry, "MAX_OPTIMIZERS", most := 8)
    discovery = Discovery()
    weight = nn.Parameter(torch.zeros(1))
    for number in range(most):
        assert discovery.register_optimizer(torch.optim.SGD([weight], lr=0.1)) == number
        gc.collect()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    assert discovery.register_optimizer(optimizer) == 0
    assert discovery.optimizers.describe(lambda tensors: [None] * len(tensors))[0].sharing == 2
    alive = [torch.optim.SGD([weight], lr=0.1) for _ in range(2 * most)]
    indices = [discovery.register_optimizer(o) for o in alive]
    assert len(set(indices)) == len(indices)
    assert 0 not in indices


def test_names_given_by_the_script_come_first() -> None:
    model = small()
    with watched() as seen:
        seen.probe.view.discovery.name_model("student", model)
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert found(seen) == [("student", "Sequential")]


def test_proxies_of_the_script_are_not_woken_up() -> None:
    class Proxy:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"asked for {name}")

    sleeping = Proxy()
    model = small()
    with watched() as seen:
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert found(seen) == [("Sequential", "Sequential")]
    assert sleeping is not None


def test_module_that_is_part_of_itself_is_found() -> None:
    """torch can call and step it, though `train()` would never end."""
    model = small()
    model[0].register_module("whole", model)
    with watched() as seen:
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 2)
    assert found(seen) == [("Sequential", "Sequential")]
    assert paths(seen) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_both_parts_of_recursive_module_are_found() -> None:
    """The whole is never called, and nothing is around it: each part stands for itself."""
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    whole = Wrapper(a=first, b=second, sub=nn.Module())
    whole.sub.register_module("back", whole)
    with watched() as seen:
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
        for _ in range(2):
            second(first(torch.randn(3, 4))).sum().backward()
            optimizer.step()
    assert len(paths(seen)) == 4


def test_part_of_model_and_of_recursive_module() -> None:
    """What the optimizer owns in the latter is shown, though the part was met in the model before."""

    class Looped(nn.Module):
        def __init__(self, part: nn.Module) -> None:
            super().__init__()
            self.part, self.w = part, nn.Parameter(torch.zeros(4))
            self.sub = nn.Module()
            self.sub.register_module("back", self)

    part = nn.Linear(4, 4)
    tree, looped = Wrapper(part=part), Looped(part)
    with watched() as seen:
        optimizer = torch.optim.SGD([*part.parameters(), looped.w], lr=0.1)
        for _ in range(2):
            (part(torch.randn(3, 4)) + looped.w).sum().backward()
            optimizer.step()
    assert any(path.endswith("w") for path in paths(seen))
    assert tree.part is part


def test_leftover_of_pretrained_model_is_not_shown() -> None:
    """CoOp: the encoders move into another model; the loaded one stays alive and is never called."""
    pair = Wrapper(text=nn.Linear(4, 4), image=nn.Linear(4, 4), tokens=nn.Embedding(9, 4), norm=nn.LayerNorm(4))
    model = Prompted(pair)
    with watched() as seen:
        # The optimizer has the encoders too, frozen or not.
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 2)
    assert found(seen) == [("Prompted", "Prompted")]
    assert paths(seen) == ["prompt", "text.weight", "text.bias", "image.weight", "image.bias"]
    assert pair.tokens is not None


def test_two_heads_on_one_encoder_are_two_models() -> None:
    """Each has something that the other has not."""
    encoder = nn.Linear(4, 4)
    one, two = Wrapper(encoder=encoder, head=nn.Linear(4, 2)), Wrapper(encoder=encoder, head=nn.Linear(4, 3))
    with watched() as seen:
        optimizer = torch.optim.SGD([*one.parameters(), *two.head.parameters()], lr=0.1)
        for model in (one, two, one, two):
            steps(model, optimizer)
    assert found(seen) == [("Wrapper", "Wrapper"), ("Wrapper_2", "Wrapper")]
    assert seen.state.tree.parameters[0].names == ("Wrapper.encoder.weight", "Wrapper_2.encoder.weight")
    assert len(paths(seen)) == len(set(paths(seen))) == 6


def test_called_wrapper_of_two_is_shown(main: types.ModuleType) -> None:
    inner = small()
    main.unused, main.used = Wrapper(inner=inner), Wrapper(inner=inner)  # type: ignore[attr-defined]
    with watched() as seen:
        steps(main.used, torch.optim.SGD(inner.parameters(), lr=0.1), 2)
    assert found(seen) == [("used", "Wrapper")]


def test_no_two_models_have_the_same_name(main: types.ModuleType) -> None:
    main.Linear_2 = nn.Linear(4, 4)  # type: ignore[attr-defined]
    models = [nn.Linear(4, 4), main.Linear_2, nn.Linear(4, 4), nn.Linear(4, 2)]
    with watched() as seen:
        optimizer = torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.1)
        x = X
        for model in models:
            x = model(x)
        x.mean().backward()
        optimizer.step()
    assert sorted(name for name, _ in found(seen)) == ["Linear", "Linear_2", "Linear_3", "Linear_4"]
    assert len(paths(seen)) == len(set(paths(seen))) == 8


def test_without_a_main_module_classes_give_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    with watched() as seen:
        monkeypatch.delitem(sys.modules, "__main__")
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert found(seen) == [("Sequential", "Sequential")]


@pytest.mark.parametrize("variable", ["compiled", "model", None])
def test_compiled_model_has_names_of_source(main: types.ModuleType, variable: str | None) -> None:
    model = small()
    compiled = torch.compile(model, backend="eager")
    if variable is not None:
        setattr(main, variable, compiled if variable == "compiled" else model)
    with watched() as seen:
        steps(compiled, torch.optim.SGD(compiled.parameters(), lr=0.1), 2)  # type: ignore[arg-type,attr-defined]
    assert found(seen) == [(variable or "Sequential", "Sequential")]
    assert paths(seen) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert set(seen.letters().values()) == {"T"}


def test_data_parallel_without_devices() -> None:
    model = nn.DataParallel(small())
    with watched() as seen:
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 2)
    assert found(seen) == [("DataParallel", "DataParallel")]
    assert paths(seen)[0] == "module.0.weight"


def test_layers_wrapped_by_adapters_while_training() -> None:
    """LoRA put on between two steps: the old weights frozen under a new path, the new ones in a group of their own."""

    class Adapter(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base = base.requires_grad_(False)
            self.down, self.up = nn.Parameter(torch.ones(1, 4)), nn.Parameter(torch.ones(base.out_features, 1))

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + x @ self.down.T @ self.up.T

    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        steps(model, optimizer, 3)
        model[2] = Adapter(model[2])  # type: ignore[arg-type]
        optimizer.add_param_group({"params": [model[2].down, model[2].up]})
        steps(model, optimizer)
        assert paths(seen) == ["0.weight", "0.bias", "2.down", "2.up", "2.base.weight", "2.base.bias"]
        seen.submit(lambda id_: SetTrainable(id_, "2.base.bias", True))
        steps(model, optimizer, 2)
    assert seen.letters() == {
        "0.weight": "T", "0.bias": "T", "2.down": "T", "2.up": "T", "2.base.weight": "F", "2.base.bias": "T",
    }  # fmt: skip
    assert [event.text.split(":")[0] for event in seen.all(CommandApplied)] == ["unfroze 2.base.bias"]


def test_folds_sharing_memory_are_told_apart() -> None:
    """Without a collection in between Python hands out the same ids again."""
    with watched() as seen:
        alive = []
        for _ in range(8):
            model = small()
            alive.append(weakref.ref(model))
            steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 2)
            tree = seen.probe.view.tree
            assert tree.module_refs[0]() is model
            assert all(tree.owns(parameter) == index for index, parameter in enumerate(model.parameters()))
            assert set(seen.letters().values()) == {"T"}
        assert [ref() is None for ref in alive] == [True] * 7 + [False]
    assert len(seen.all(ModelsFound)) == 8


def test_command_in_new_fold_is_for_its_optimizer() -> None:
    """Applied before the new optimizer's first step, while the last fold's still lives and has just stepped."""
    with watched() as seen:
        old = small()
        first = torch.optim.Adam(old.parameters())
        steps(old, first, 30)
        model = small()
        model[0].requires_grad_(False)
        second = torch.optim.SGD(model[2].parameters(), lr=0.1)
        names = ["Sequential_2.0", "Sequential.0"]
        seen.submit(lambda id_: SetTrainable(id_, names[0], True))
        steps(model, second)
        (applied,) = seen.all(CommandApplied)
        assert applied.text.endswith("holds 4 parameters instead of 2")
        assert len(second.param_groups[0]["params"]) == 4
        assert len(first.param_groups[0]["params"]) == 4


def test_nothing_is_searched_once_all_is_known(searches: list[int]) -> None:
    specimen = SPECIMENS["tied_gpt"]()
    with watched() as seen:
        loops.adamw(specimen.model, specimen.batch, specimen.loss, 3)
        known = (len(searches), len(seen.all(ModelsFound)), len(seen.all(OptimizersFound)))
    model = small()
    searches.clear()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps(model, optimizer, 2)
        after_two = (len(searches), len(seen.all(ModelsFound)), len(seen.all(OptimizersFound)))
        steps(model, optimizer, 50)
        assert (len(searches), len(seen.all(ModelsFound)), len(seen.all(OptimizersFound))) == after_two
    assert known[1:] == after_two[1:] == (1, 1)


def test_new_module_each_step_stays_within_budget(searches: list[int]) -> None:
    """A hypernetwork that builds its target anew."""
    with watched() as seen:
        view = seen.probe.view
        spent = [0]

        real = view._list

        def listing(step: int, *, may_search: bool) -> None:
            if may_search:
                spent.append(view._searched_ns)
            real(step, may_search=may_search)

        view._list = listing  # type: ignore[method-assign]
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        view._searched_ns = model_registry._SEARCH_NS
        for _ in range(60):
            fresh = nn.Linear(2, 2)
            fresh(model(X)).mean().backward()
            optimizer.step()
        elapsed, within = time.perf_counter_ns() - view._began, [*spent]
    # Each search but the one at the end began within the budget.
    assert all(before <= model_registry._SEARCH_NS + model_registry._SEARCH_SHARE * elapsed for before in within)
    assert len(searches) < 30
    assert seen.state.step == 60


@pytest.mark.parametrize("deep", [False, True])
def test_model_wrapped_for_every_call_is_model(main: types.ModuleType, deep: bool) -> None:
    # As torchdiffeq does: neither the wrapper nor what is in it has been there before, but for the innermost.
    main.net = small()

    def wrapped() -> nn.Module:
        return Wrapper(inner=nn.Sequential(main.net) if deep else main.net)

    class Wrapper(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    with watched() as seen:
        optimizer = torch.optim.SGD(main.net.parameters(), lr=0.1)
        for _ in range(12):
            steps(wrapped(), optimizer)
        searches = len(seen.all(ModelsFound))
        for _ in range(20):
            steps(wrapped(), optimizer)
        assert found(seen) == [("net", "Sequential")]
        assert paths(seen) == ["0.weight", "0.bias", "2.weight", "2.bias"]
        assert set(seen.letters().values()) == {"T"}
        assert len(seen.all(ModelsFound)) == searches


def test_model_rebuilt_around_same_layers_stays_model(main: types.ModuleType) -> None:
    main.net = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(main.net.parameters(), lr=0.1)
        steps(main.net, optimizer, 3)
        main.net = nn.Sequential(*main.net, nn.Tanh())
        gc.collect()
        steps(main.net, optimizer, 3)
    assert found(seen) == [("net", "Sequential")]


def test_evaluated_averaged_model_comes_into_view() -> None:
    model = small()
    averaged = torch.optim.swa_utils.AveragedModel(model)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps(model, optimizer, 2)
        averaged.update_parameters(model)
        with torch.no_grad():
            averaged(X)
        steps(model, optimizer, 2)
    assert found(seen) == [("Sequential", "Sequential"), ("AveragedModel", "AveragedModel")]
    letters = seen.letters()
    assert {letter for path, letter in letters.items() if path.startswith("Sequential.")} == {"T"}
    # It is only evaluated: its parameters are no orphans.
    assert {letter for path, letter in letters.items() if path.startswith("AveragedModel.")} == {"-"}


def test_lightning_style_training_is_one_model(main: types.ModuleType) -> None:
    """The outer module's own forward never runs; a method of it calls the parts, and a metric module lies beside them."""

    class Task(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.loss = small(), nn.Linear(2, 1), nn.MSELoss()

        def training_step(self, x: Tensor) -> Tensor:
            return self.loss(self.head(self.body(x)), torch.zeros(6, 1))

    main.task = Task()  # type: ignore[attr-defined]
    with watched() as seen:
        optimizer = torch.optim.Adam(main.task.parameters())
        loss_steps(optimizer, lambda: main.task.training_step(X), 3)
    assert found(seen) == [("task", "Task")]
    assert paths(seen)[0] == "body.0.weight"
    assert set(seen.letters().values()) == {"T"}


def test_script_building_early_without_module_calls() -> None:
    """Only the optimizer tells: its parameters belong to a model whose forward is a plain function's business."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        for _ in range(3):
            optimizer.zero_grad()
            weight, bias = model[0].weight, model[0].bias
            nn.functional.linear(X, weight, bias).square().mean().backward()  # type: ignore[arg-type]
            optimizer.step()
    assert found(seen) == [("Sequential", "Sequential")]
    assert seen.letters() == {"0.weight": "T", "0.bias": "T", "2.weight": "U", "2.bias": "U"}


# ---- the tree


@pytest.mark.slow
def test_a_model_of_five_thousand_modules() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(5_000)))
    tree = build([("m", model)])
    began = time.thread_time()
    tree = build([("m", model)])
    built = time.thread_time() - began
    began = time.thread_time()
    assert tree.is_current()
    checked = time.thread_time() - began
    assert len(tree.parameters) == 5_000
    assert built < 1.0
    assert checked < 0.1
    with watched(budget=0.01) as seen:
        steps(model, torch.optim.SGD(model.parameters(), lr=1e-6), 3)
    assert len(seen.state.tree.modules) == 5_001


SCRIPT = """
import torch
from torch import nn
from helpers.watched import watched

with watched() as seen:
    encoder = nn.Linear(4, 4)
    net = nn.Sequential(encoder, nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print([(model.name, model.type_name) for model in seen.state.tree.models])
"""


@pytest.mark.slow
def test_in_a_script_of_its_own() -> None:
    assert run_program(SCRIPT).stdout.strip() == "[('net', 'Sequential')]"


@pytest.fixture
def without_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process with millions of objects: no search is made again once there was one, while the script runs."""
    monkeypatch.setattr(
        model_registry.ModelRegistry, "_may_search", property(lambda self: not self._searched_ns), raising=True
    )


@pytest.mark.usefixtures("without_searches")
def test_replaced_head_is_seen_without_search(searches: list[int]) -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps(model, optimizer, 3)
        count = len(searches)
        model[2] = nn.Linear(4, 7)
        steps(model, optimizer, 4)
        shapes = [info.shape for info in seen.state.tree.parameters]
        assert shapes == [(4, 4), (4,), (7, 4), (7,)]
        assert seen.letters() == {"0.weight": "T", "0.bias": "T", "2.weight": "O", "2.bias": "O"}
        assert len(searches) == count
        second = torch.optim.Adam(model.parameters(), lr=0.1)
        steps(model, second, 4)
        assert set(seen.letters().values()) == {"T"}
    assert seen.state.optimizer_steps == [7, 4]


@pytest.mark.usefixtures("without_searches")
def test_module_written_into_dictionary_is_seen_next_sample() -> None:
    """No registration is heard of."""
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps(model, optimizer, 3)
        model._modules["2"] = nn.Linear(4, 7)
        steps(model, optimizer, 1)
    assert [info.shape for info in seen.state.tree.parameters][2:] == [(7, 4), (7,)]


def test_buffer_registered_later_is_listed_alone() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps(model, optimizer, 3)
        model[0].register_buffer("mask", torch.ones(4, 4))
        steps(model, optimizer, 1)
        assert [(info.path, info.shape) for info in seen.state.tree.buffers] == [("0.mask", (4, 4))]
        assert len(seen.all(ModelsFound)) == 2
        model[0].mask = torch.zeros(4, 4)
        steps(model, optimizer, 1)
    assert len(seen.all(ModelsFound)) == 2
    assert set(seen.letters().values()) == {"T"}


@pytest.mark.usefixtures("without_searches")
def test_what_was_seen_late_is_listed_at_end() -> None:
    model, outer = small(), None
    with watched() as seen:
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 3)
        view = seen.probe.view
        view._listed_ns = 10**18
        model[2] = nn.Linear(4, 7)
        extra = nn.Linear(2, 2)
        # The container is never called: only a search finds it.
        outer = Wrapper(inner=extra)
        adam = torch.optim.Adam(extra.parameters())
        extra(torch.randn(3, 2)).mean().backward()
        adam.step()
        assert len(seen.state.optimizers) == 1
        assert len(seen.state.tree.parameters) == 4
    assert [info.type_name for info in seen.state.optimizers] == ["SGD", "Adam"]
    assert seen.state.optimizer_steps == [3, 1]
    assert {model.type_name for model in seen.state.tree.models} == {"Sequential", "Wrapper"}
    assert (7, 4) in [info.shape for info in seen.state.tree.parameters]
    assert outer is not None


def test_two_optimizers_one_after_other_are_two_rows() -> None:
    model = small()

    def stage(count: int) -> None:
        steps(model, torch.optim.Adam(model.parameters()), count)

    with watched() as seen:
        stage(2)
        stage(60)
    rows = summarised(seen.state)["optimizers"]
    assert [(row["type"], row["steps"], row["freed"]) for row in rows] == [("Adam", 2, True), ("Adam", 60, True)]
    assert [row["parameters"] for row in rows] == [4, 4]


def test_frozen_base_that_lends_its_code_is_listed(main: types.ModuleType) -> None:
    """A delta for each frozen weight, as LoRA written with `torch.func.functional_call`."""
    from torch.func import functional_call

    main.base = small().requires_grad_(False)
    deltas = {name: nn.Parameter(torch.zeros_like(p)) for name, p in main.base.named_parameters()}
    with watched() as seen:
        optimizer = torch.optim.SGD(deltas.values(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            merged = {name: p + deltas[name] for name, p in main.base.named_parameters()}
            functional_call(main.base, merged, (X,)).square().mean().backward()
            optimizer.step()
    assert found(seen) == [("base", "Sequential")]
    assert set(seen.letters().values()) == {"F"}
    saved = seen.state.tree.saved
    # The batch, what Tanh keeps, and the merged weight of the last layer: no other is needed to go on backward.
    assert sum(saved.by_module) == 4 * (X.numel() + 6 * 4 + 2 * 4)


def test_base_with_unused_values_is_not_listed(main: types.ModuleType) -> None:
    """Stacked parameters in a plain dictionary, as the ensembles of torch.func have them."""
    from torch.func import functional_call

    main.base = small()
    own = {name: p.detach().clone().requires_grad_() for name, p in main.base.named_parameters()}
    with watched() as seen:
        optimizer = torch.optim.SGD(own.values(), lr=0.1)
        loss_steps(optimizer, lambda: functional_call(main.base, own, (X,)).square().mean(), 4)
    assert found(seen) == []


@pytest.mark.filterwarnings("ignore:`torch.jit.*` is:DeprecationWarning")
def test_a_model_from_torch_jit_load_is_listed() -> None:
    """Its parameters are plain tensors."""
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Linear(3, 2)), file)
    file.seek(0)
    with watched() as seen:
        loaded, head = torch.jit.load(file), nn.Linear(2, 1)
        optimizer = torch.optim.SGD([*loaded.parameters(), *head.parameters()], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            head(loaded(torch.ones(4, 3))).sum().backward()
            optimizer.step()
    assert [model.type_name for model in seen.state.tree.models] == ["RecursiveScriptModule", "Linear"]
    assert set(seen.letters().values()) == {"T"}
