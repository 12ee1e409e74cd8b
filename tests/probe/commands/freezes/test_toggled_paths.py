"""Which tensors a path names, in a model as it is now."""

from __future__ import annotations

import time
from collections import OrderedDict

import pytest
import torch
from helpers.toggling import X, ask, freeze, refused, small, step, unfreeze
from helpers.watched import watched
from torch import nn
from zoo import SPECIMENS

from gradtui.probe.commands.selections import select
from gradtui.probe.model.module_tree import ModuleTree
from gradtui.probe.runtime.outcome import CommandRefused
from gradtui.protocol.events import CommandApplied, ModelsFound
from gradtui.protocol.vocabulary import ParameterInfo
from gradtui.run.text import refusals


def test_module_with_weight_listed_elsewhere_is_toggled() -> None:
    """As `model.lm_head.requires_grad_(False)` in the script would."""
    specimen = SPECIMENS["tied_gpt"]()
    model = specimen.model
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4):
            if number == 1:
                seen.submit(freeze("lm_head"))
                seen.submit(freeze("tok_emb"))
            if number == 2:
                seen.submit(unfreeze("lm_head.weight"))
            specimen.loss(model(*specimen.batch(0))).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert seen.answers() == [
        "froze lm_head: 1 tensor, 272 parameters (tied to tok_emb.weight)",
        "tok_emb is already frozen",
        "unfroze lm_head.weight: 1 tensor, 272 parameters (tied to tok_emb.weight)",
    ]
    assert model.lm_head.weight.requires_grad


def test_a_shared_module_is_toggled_by_either_path() -> None:
    specimen = SPECIMENS["shared_module"]()
    with watched() as seen:
        optimizer = torch.optim.SGD(specimen.model.parameters(), lr=0.1)
        for number in range(3):
            if number == 1:
                seen.submit(freeze("second"))
                seen.submit(freeze("first.bias"))
            specimen.loss(specimen.model(*specimen.batch(0))).backward()
            optimizer.step()
    assert "(tied to first.weight, first.bias)" in seen.answers()[0]
    assert seen.answers()[1] == refusals.already("first.bias", "frozen")


def test_path_is_understood_despite_later_or_wrapped_models() -> None:
    model, other = small(), nn.Linear(2, 1)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(freeze("Sequential.0.bias"))
        seen.submit(freeze("_orig_mod.2.bias"))
        step(model, optimizer)
        joined = torch.optim.SGD(other.parameters(), lr=0.1)
        for number in range(3):
            if number == 1:
                seen.submit(freeze("4.bias"))
                seen.submit(freeze("2"))
            other(model(X)).square().mean().backward()
            optimizer.step()
            joined.step()
    assert seen.answers() == [
        "froze 0.bias: 1 tensor, 8 parameters",
        "froze 2.bias: 1 tensor, 8 parameters",
        "froze Sequential.4.bias: 1 tensor, 2 parameters",
        "froze Sequential.2: 1 tensor, 64 parameters",
    ]


def test_a_name_is_no_prefix_of_another() -> None:
    model = nn.Sequential(OrderedDict(fc=nn.Linear(4, 4), fc1=nn.Linear(4, 4), fc10=nn.Linear(4, 2)))
    seen = ask(model, torch.optim.SGD(model.parameters(), lr=0.1), {1: [freeze("fc1"), freeze("f")]})
    assert seen.answers()[0] == "froze fc1: 2 tensors, 20 parameters"
    assert "no module or parameter 'f'" in seen.answers()[1]
    assert [p.requires_grad for p in model.parameters()] == [True, True, False, False, True, True]


def test_model_toggles_what_it_holds_now() -> None:
    """Between two examined steps the script may replace a part; the old one must not be frozen in its stead."""
    model = small()
    with watched(budget=1e-9) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(40):
            if number == 30:
                # Not even if searches for models have used up their share of the time.
                seen.probe.view._searched_ns = 10**18
                old = model[2]
                model[2] = nn.Linear(8, 8)
                optimizer.add_param_group({"params": model[2].parameters()})
                seen.submit(freeze("2"))
                seen.submit(freeze("0"))
            step(model, optimizer)
    assert [event.step for event in seen.all(CommandApplied)] == [30, 30]
    assert not model[2].weight.requires_grad
    assert old.weight.requires_grad
    # At first as what it holds now. The optimizer still has the old one, so that a search shows it too: as a model of its own.
    assert [len(found.parameters) for found in seen.all(ModelsFound)] == [6, 6, 8]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("text_encoder.layr0.weight", "did you mean text_encoder.layer0.weight"),
        ("layer0", "did you mean text_encoder.layer0 or image_encoder.layer0"),
        ("bias", "did you mean text_encoder.layer0.bias or image_encoder.layer0.bias"),
        ("quite.another.thing", "'quite.another.thing'"),
    ],
)
def test_unknown_path_is_answered_with_near_ones(path: str, hint: str) -> None:
    parts = {f"{name}_encoder": nn.Sequential(OrderedDict(layer0=nn.Linear(4, 4))) for name in ("text", "image")}
    model = nn.Sequential(OrderedDict(parts))
    seen = ask(model, torch.optim.SGD(model.parameters(), lr=0.1), {1: [freeze(path)]})
    assert hint in seen.answers()[0]
    assert repr(path) in seen.answers()[0]


def test_unknown_path_is_answered_quickly() -> None:
    paths = (f"encoder.layers.{number}.attention.output.dense.weight" for number in range(60_000))
    tree = ModuleTree(parameters=tuple(ParameterInfo(path, (path,), (1,), "float32", 1, 4, 0) for path in paths))
    began = time.thread_time()
    with pytest.raises(CommandRefused, match=r"did you mean encoder\.layers\.7\.attention\.output\.dense\.weight"):
        select("encoder.layers.7.attention.output.dense.weigth", tree)
    assert time.thread_time() - began < 1


def test_module_without_parameters_is_said_to_have_none() -> None:
    model = small()
    assert refused(model, [torch.optim.SGD(model.parameters(), lr=0.1)], freeze("1")) == "it has no parameters"


def test_the_whole_of_two_models_has_no_name() -> None:
    model, other = small(), nn.Linear(2, 1)
    both = nn.ModuleList([model, other])
    with watched() as seen:
        one, two = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
        del both
        for _ in seen.steps(3, {1: unfreeze("")}):
            other(model(X)).square().mean().backward()
            one.step()
            two.step()
    assert seen.answers()[0].endswith("parameter ''")
