"""The tree of modules and parameters: its order and ranges for any model, and whether it notices that a model has changed."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable

import pytest
import torch
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from zoo import SPECIMENS

from gradtui.probe.model.module_tree import ModuleTree
from gradtui.probe.model.tree_builder import _MAX_NAMES, build
from gradtui.protocol.vocabulary import ModuleInfo


def module(*parameters: nn.Parameter | None, **children: nn.Module | None) -> nn.Module:
    made = nn.Module()
    for index, parameter in enumerate(parameters):
        made.register_parameter(f"p{index}", parameter)
    for name, child in children.items():
        made.register_module(name, child)
    return made


def subtree(tree: ModuleTree, info: ModuleInfo) -> list[str]:
    """Paths of a module's range of parameters."""
    last = info.first_parameter + info.subtree_parameters
    return [parameter.path for parameter in tree.parameters[info.first_parameter : last]]


# ---- order and ranges


@st.composite
def models(draw: st.DrawFn) -> nn.Module:
    """A random tree of modules in which parameters may be tied, modules shared, and slots empty."""
    parameters: list[nn.Parameter] = []
    modules: list[nn.Module] = []

    def parameter() -> nn.Parameter | None:
        kind = draw(st.sampled_from(["new", "new", "new", "tied", "none"]))
        if kind == "none":
            return None
        if kind == "tied" and parameters:
            return draw(st.sampled_from(parameters))
        parameters.append(nn.Parameter(torch.zeros(draw(st.integers(0, 3)))))
        return parameters[-1]

    def grow(depth: int) -> nn.Module | None:
        kind = draw(st.sampled_from(["new", "new", "new", "shared", "none"])) if depth else "new"
        if kind == "none":
            return None
        if kind == "shared" and modules:
            return draw(st.sampled_from(modules))
        made = module(*(parameter() for _ in range(draw(st.integers(0, 2)))))
        for index in range(draw(st.integers(0, 3)) if depth < 4 else 0):
            # Only finished modules are shared, so that none becomes a part of itself.
            made.register_module(f"m{index}", grow(depth + 1))
        modules.append(made)
        return made

    root = grow(0)
    assert root is not None
    return root


@given(models())
def test_subtrees_are_ranges_of_named_parameters(model: nn.Module) -> None:
    tree = build([("model", model)])
    assert [info.path for info in tree.modules] == [name for name, _ in model.named_modules()]
    assert [info.path for info in tree.parameters] == [name for name, _ in model.named_parameters()]
    first_of = {id(parameter): name for name, parameter in model.named_parameters()}
    for index, info in enumerate(tree.modules):
        live = tree.module_refs[index]()
        assert live is model.get_submodule(info.path)
        prefix = f"{info.path}." if info.path else ""
        # What is tied or shared is listed where it was met first: in a module before this one, if that has it too.
        expected = [
            first_of[id(parameter)]
            for name, parameter in live.named_parameters()
            if first_of[id(parameter)] == prefix + name
        ]
        assert subtree(tree, info) == expected
        below = tree.modules[index : index + info.subtree_modules]
        assert [each for each, other in enumerate(tree.modules) if is_within(tree, each, index)] == list(
            range(index, index + info.subtree_modules)
        )
        assert sum(other.own_parameters for other in below) == info.subtree_parameters
        own = tree.parameters[info.first_parameter : info.first_parameter + info.own_parameters]
        assert all(parameter.module == index for parameter in own)
        assert info.depth == (0 if info.parent < 0 else tree.modules[info.parent].depth + 1)


def is_within(tree: ModuleTree, index: int, above: int) -> bool:
    while index >= 0 and index != above:
        index = tree.modules[index].parent
    return index == above


@given(models())
def test_every_path_of_parameter_is_its_name(model: nn.Module) -> None:
    tree = build([("model", model)])
    names: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(name)
    for index, tensor in tree.live_parameters():
        info = tree.parameters[index]
        assert info.names[0] == info.path
        assert set(info.names) == names[id(tensor)] or len(info.names) == _MAX_NAMES
        assert len(info.names) == len(set(info.names))
        assert set(info.names) <= names[id(tensor)]
        assert tree.owns(tensor) == index


@settings(max_examples=examples(10))
@given(st.lists(models(), min_size=2, max_size=3))
def test_several_models_lie_one_after_the_other(roots: list[nn.Module]) -> None:
    tree = build([(f"model{index}", root) for index, root in enumerate(roots)])
    assert [model.name for model in tree.models] == [f"model{index}" for index in range(len(roots))]
    covered: list[int] = []
    for model, root in zip(tree.models, roots):
        info = tree.modules[model.root]
        assert (info.path, info.parent, info.depth) == (model.name, -1, 0)
        assert subtree(tree, info) == [f"{model.name}.{name}" for name, _ in root.named_parameters()]
        covered += range(model.root, model.root + info.subtree_modules)
    assert covered == list(range(len(tree.modules)))


@given(models())
def test_a_tree_is_current_until_something_changes(model: nn.Module) -> None:
    tree = build([("model", model)])
    assert tree.is_current()
    assert tree.is_same(build([("model", model)]))
    model.register_parameter("late", nn.Parameter(torch.zeros(1)))
    assert not tree.is_current()


def test_part_that_two_models_share_belongs_to_first() -> None:
    encoder = nn.Linear(2, 2)
    one, two = module(encoder=encoder, head=nn.Linear(2, 1)), module(encoder=encoder, head=nn.Linear(2, 3))
    tree = build([("one", one), ("two", two)])
    assert [info.path for info in tree.parameters] == [
        "one.encoder.weight", "one.encoder.bias", "one.head.weight", "one.head.bias", "two.head.weight", "two.head.bias",
    ]  # fmt: skip
    assert tree.parameters[0].names == ("one.encoder.weight", "two.encoder.weight")


def test_a_model_given_twice_is_listed_once() -> None:
    model = nn.Linear(2, 2)
    tree = build([("a", model), ("b", model)])
    assert [info.name for info in tree.models] == ["a"]


def test_nothing_at_all() -> None:
    tree = build([])
    assert (tree.models, tree.modules, tree.parameters) == ((), (), ())
    assert tree.is_current()


# ---- odd models


def test_shared_module_of_tied_weights_keeps_names() -> None:
    weight = nn.Parameter(torch.zeros(2))
    shared = module(weight, inner=module(weight))
    tree = build([("model", module(a=shared, b=shared))])
    assert [info.names for info in tree.parameters] == [("a.p0", "a.inner.p0", "b.p0", "b.inner.p0")]


def test_modules_shared_at_every_level_do_not_multiply() -> None:
    """Two paths into each of 40 levels make 2 to the 40 paths to the innermost parameter."""
    model = module(nn.Parameter(torch.zeros(1)))
    for _ in range(40):
        model = module(left=model, right=model)
    began = time.thread_time()
    tree = build([("model", model)])
    assert time.thread_time() - began < 1
    assert len(tree.modules) == 41
    assert len(tree.parameters) == 1
    assert len(tree.parameters[0].names) == _MAX_NAMES


def test_a_module_that_is_a_part_of_itself() -> None:
    """torch itself lists its parameters, though `train()` would never end."""
    child = module(nn.Parameter(torch.zeros(1)))
    root = module(child=child)
    child.register_module("parent", root)
    tree = build([("model", root)])
    assert [info.path for info in tree.modules] == ["", "child"]
    assert [info.names for info in tree.parameters] == [("child.p0",)]
    assert tree.is_current()


@pytest.mark.parametrize("depth", [300, 5_000])
def test_deep_nesting_meets_no_limit(depth: int) -> None:
    model = module(nn.Parameter(torch.zeros(1)))
    for _ in range(depth):
        model = module(nn.Parameter(torch.zeros(1)), inner=model)
    tree = build([("model", model)])
    assert len(tree.modules) == len(tree.parameters) == depth + 1
    assert tree.modules[-1].depth == depth
    assert tree.modules[0].subtree_parameters == depth + 1
    assert tree.is_current()
    # Taking it apart from the outside keeps Python's own destructor from nesting as deep.
    while "inner" in model._modules:
        model = model._modules.pop("inner")  # type: ignore[assignment]


def test_five_thousand_modules_in_half_a_second() -> None:
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Identity(), nn.Dropout()) for _ in range(1_000))
    )
    taken = []
    for _ in range(3):
        began = time.thread_time()
        tree = build([("model", model)])
        taken.append(time.thread_time() - began)
    assert len(tree.modules) == 5_001
    assert min(taken) < 0.5


def test_compiled_part_is_listed_as_what_it_compiles() -> None:
    """`torch.compile` wraps a module in another; paths are the source's, as if nothing had been compiled."""
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    plain = build([("model", module(body=inner, head=nn.Linear(2, 1)))])
    whole = module(body=torch.compile(inner, backend="eager"), head=nn.Linear(2, 1))  # type: ignore[arg-type]
    for model in (whole, torch.compile(whole, backend="eager")):
        tree = build([("model", model)])  # type: ignore[list-item]
        assert [info.path for info in tree.parameters] == [info.path for info in plain.parameters]
        assert [info.path for info in tree.modules] == [info.path for info in plain.modules]
        assert [info.type_name for info in tree.modules] == [info.type_name for info in plain.modules]
        assert tree.is_current()
        # The wrapper is what is called: it stands for what it wraps.
        for wrapper in model.modules():  # type: ignore[union-attr]
            if type(wrapper).__name__ == "OptimizedModule":
                assert tree.index_of(wrapper) == tree.index_of(wrapper._orig_mod) >= 0


def test_released_wrapper_leaves_id_to_another() -> None:
    model = module(body=nn.Linear(2, 2))
    compiled = torch.compile(model, backend="eager")
    tree = build([("model", compiled)])  # type: ignore[list-item]
    del compiled
    gc.collect()
    assert not tree.is_current()
    assert not tree.is_same(build([("model", model)]))


def test_parametrized_and_lazy_weights() -> None:
    tree = build([("model", SPECIMENS["weight_normalised"]().model)])
    assert "0.parametrizations.weight.original0" in [info.path for info in tree.parameters]
    assert "0.weight" not in [info.path for info in tree.parameters]
    lazy = SPECIMENS["lazy"]()
    tree = build([("model", lazy.model)])
    assert {(info.count, info.bytes, info.shape) for info in tree.parameters} == {(0, 0, ())}
    assert tree.is_current()
    lazy.model(*lazy.batch(0))
    assert not tree.is_current()


# ---- noticing changes

CHANGES: dict[str, Callable[[nn.Sequential], object]] = {
    "a module is added": lambda model: model.append(nn.Linear(2, 2)),
    "a module without parameters is added": lambda model: model.append(nn.ReLU()),
    "a module is replaced": lambda model: model.__setitem__(0, nn.Linear(2, 2)),
    "a module is wrapped": lambda model: model.__setitem__(0, nn.Sequential(model[0])),
    "a module is removed": lambda model: model.__delitem__(2),
    "two modules swap places": lambda model: swap(model),
    "a parameter is replaced": lambda model: setattr(model[0], "weight", nn.Parameter(torch.zeros(2, 2))),
    "a parameter is removed": lambda model: setattr(model[0], "bias", None),
    "a parameter is tied": lambda model: setattr(model[2], "weight", model[0].weight),
    "a parameter has another type": lambda model: model.to(torch.float64),
    "a parameter has another shape": lambda model: setattr(model[0].weight, "data", torch.zeros(3, 2)),
}


def swap(model: nn.Sequential) -> None:
    model[0], model[2] = model[2], model[0]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(change: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    # The script may still hold on to what it takes out of the model.
    kept = [*model.modules(), *model.parameters()]
    tree = build([("model", model)])
    assert tree.is_current()
    CHANGES[change](model)
    assert not tree.is_current()
    assert not tree.is_same(build([("model", model)]))
    assert build([("model", model)]).is_current()
    assert kept


def test_values_gradients_and_flags_are_no_change() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("seen", torch.ones(1))
    tree = build([("model", model)])
    model(torch.ones(1, 2)).sum().backward()
    model.requires_grad_(False)
    model.eval()
    with torch.no_grad():
        model.weight.add_(1)
    # As a count that a script writes anew in every step.
    model.seen = torch.zeros(1)
    assert tree.is_current()
    assert tree.is_same(build([("model", model)]))


def test_other_model_in_same_memory_is_other() -> None:
    """Python hands out a freed object's id again at once; k-fold makes one model after the other that way."""
    old, new = module(nn.Parameter(torch.zeros(3))), module(nn.Parameter(torch.zeros(3)))
    before, after = build([("model", old)]), build([("model", new)])
    del old
    # As if the new ones had been given the memory of the old.
    before.module_index, before.parameter_index, before.contents = (
        after.module_index,
        after.parameter_index,
        after.contents,
    )
    assert not after.is_same(before)
    assert not before.is_same(after)
    assert not before.is_current()
    assert before.owns(new.p0) is None  # type: ignore[arg-type]


def test_a_tree_keeps_nothing_alive() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    tree = build([("model", model)])
    left: list[weakref.ref[nn.Module] | weakref.ref[Tensor]] = [weakref.ref(m) for m in model.modules()]
    left += [weakref.ref(p) for p in model.parameters()]
    del model
    assert [ref() for ref in left] == [None] * 5
    assert not tree.is_current()
    assert list(tree.live_parameters()) == []
    assert list(tree.live_modules()) == []


def test_buffers_have_module_and_place_in_checkpoint() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)
            self.register_buffer("mask", torch.ones(2, 5, dtype=torch.bool), persistent=False)
            self.register_buffer("none", None)
            self.register_buffer("again", self.norm.running_mean)

    net = Net()
    tree = build([("net", net)])
    # `again` is the running mean, which is listed once, at the first of its paths.
    assert [(each.path, each.shape, each.dtype, each.bytes, each.persistent) for each in tree.buffers] == [
        ("mask", (2, 5), "bool", 10, False),
        ("again", (3,), "float32", 12, True),
        ("norm.running_var", (3,), "float32", 12, True),
        ("norm.num_batches_tracked", (), "int64", 8, True),
    ]
    assert [each.module for each in tree.buffers] == [0, 0, 1, 1]
    net.mask = torch.zeros(2, 5, dtype=torch.bool)
    assert tree.is_current()
