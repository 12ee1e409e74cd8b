"""What selections name, on small models in the shapes of those that people fine-tune."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from time import process_time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gradtui.probe.model.module_tree import ModuleTree
from gradtui.probe.model.tree_builder import build
from gradtui.run.state.tree.selection import PRESETS, NothingSelected, find, joined, offered, one_selection

DEMO = Path(__file__).parents[3] / "demos" / "coop_like.py"


def named(**children: nn.Module) -> nn.Module:
    """A module with these children."""
    parent = nn.Module()
    for name, child in children.items():
        parent.add_module(name, child)
    return parent


class BasicBlock(nn.Module):
    def __init__(self, width: int, before: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, width, 3, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, bias=False), nn.BatchNorm2d(width)
        if before != width:
            self.downsample = nn.Sequential(nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width))


def resnet() -> nn.Module:
    """As torchvision's ResNet-18."""
    layers = {
        f"layer{number}": nn.Sequential(
            BasicBlock(2 * number, max(2, 2 * number - 2)), BasicBlock(2 * number, 2 * number)
        )
        for number in range(1, 5)
    }
    return named(conv1=nn.Conv2d(3, 2, 7, bias=False), bn1=nn.BatchNorm2d(2), **layers, fc=nn.Linear(8, 5))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(4), named(c_attn=nn.Linear(4, 12), c_proj=nn.Linear(4, 4))
        self.ln_2, self.mlp = nn.LayerNorm(4), named(c_fc=nn.Linear(4, 16), c_proj=nn.Linear(16, 4))


def gpt() -> nn.Module:
    """As transformers' GPT-2: the head's weight is that of the token embedding."""
    h = nn.ModuleList(Block() for _ in range(6))
    body = named(wte=nn.Embedding(9, 4), wpe=nn.Embedding(7, 4), h=h, ln_f=nn.LayerNorm(4))
    model = named(transformer=body, lm_head=nn.Linear(4, 9, bias=False))
    model.lm_head.weight = body.wte.weight
    return model


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attention = nn.MultiheadAttention(4, 2)
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
        self.ln = nn.LayerNorm(4)


def vit() -> nn.Module:
    """As torchvision's: the blocks are named encoder_layer_0 and so on."""
    layers = nn.Sequential()
    for number in range(3):
        layers.add_module(f"encoder_layer_{number}", Layer())
    encoder = named(layers=layers, ln=nn.LayerNorm(4))
    encoder.pos_embedding = nn.Parameter(torch.zeros(1, 5, 4))
    return named(conv_proj=nn.Conv2d(3, 4, 2), encoder=encoder, heads=nn.Sequential())


def vit_with_head() -> nn.Module:
    model = vit()
    model.heads.add_module("head", nn.Linear(4, 3))
    return model


class BertLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        own = named(query=nn.Linear(4, 4), key=nn.Linear(4, 4), value=nn.Linear(4, 4))
        self.attention = named(self=own, output=named(dense=nn.Linear(4, 4), LayerNorm=nn.LayerNorm(4)))
        self.output = named(dense=nn.Linear(4, 4), LayerNorm=nn.LayerNorm(4))


def bert(*, classifies: bool = True) -> nn.Module:
    embeddings = named(word_embeddings=nn.Embedding(9, 4), LayerNorm=nn.LayerNorm(4))
    encoder = named(layer=nn.ModuleList(BertLayer() for _ in range(4)))
    body = named(embeddings=embeddings, encoder=encoder, pooler=named(dense=nn.Linear(4, 4)))
    return named(bert=body, classifier=nn.Linear(4, 2)) if classifies else body


def lora() -> nn.Module:
    """As PEFT wraps it."""

    def adapted() -> nn.Module:
        pairs = {f"lora_{letter}": nn.ModuleDict({"default": nn.Linear(4, 4, bias=False)}) for letter in "AB"}
        return named(base_layer=nn.Linear(4, 4), **pairs)

    layers = nn.ModuleList(named(q_proj=adapted(), v_proj=adapted(), mlp=nn.Linear(4, 4)) for _ in range(2))
    inner = named(embed_tokens=nn.Embedding(9, 4), layers=layers, norm=nn.LayerNorm(4))
    return named(base_model=named(model=named(model=inner, lm_head=nn.Linear(4, 9, bias=False))))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def coop() -> nn.Module:
    """The model of the demo, from its own source, without its training."""
    source = DEMO.read_text(encoding="utf-8").partition("\ntorch.set_num_threads")[0]
    names: dict[str, type[nn.Module]] = {}
    exec(compile(source, str(DEMO), "exec"), names)
    return names["CoOp"](names["CLIP"]())  # type: ignore[no-any-return]


def tree_of(model: nn.Module) -> ModuleTree:
    return build([("model", model)])


def paths(selection: str, model: nn.Module) -> set[str]:
    tree = tree_of(model)
    return {tree.parameters[index].path for index in find(selection, tree).indices}


def starting(model: nn.Module, starts: Iterable[str]) -> set[str]:
    return {name for name, _ in model.named_parameters() if any(name.startswith(f"{start}.") for start in starts)}


@pytest.mark.parametrize(
    ("make", "head"),
    [
        (resnet, ["fc"]),
        (vit_with_head, ["heads"]),
        (bert, ["classifier"]),
        (lambda: bert(classifies=False), ["pooler.dense"]),
        (lora, ["base_model.model.lm_head"]),
        (mlp, ["4"]),
        (coop, ["text_encoder.projection"]),
        (
            lambda: nn.Sequential(nn.Embedding(9, 4), *(Block() for _ in range(2)), nn.LayerNorm(4), nn.Linear(4, 9)),
            ["4"],
        ),
        (lambda: named(features=nn.Conv2d(3, 4, 2), norm=nn.BatchNorm2d(4)), ["features"]),
    ],
)
def test_the_head(make, head: list[str]) -> None:
    model = make()
    assert paths(":head", model) == starting(model, head) != set()


def test_tied_head_is_tensor_it_is_tied_to() -> None:
    assert paths(":head", gpt()) == {"transformer.wte.weight"}
    assert paths("lm_head", gpt()) == paths("lm_head.weight", gpt()) == paths("lm_*", gpt()) == paths(":head", gpt())


@pytest.mark.parametrize("make", [vit, lambda: named(blocks=nn.ModuleList(Block() for _ in range(3)))])
def test_a_model_without_a_head_says_so(make) -> None:
    with pytest.raises(NothingSelected, match="no module that comes after its blocks"):
        find(":head", tree_of(make()))


@pytest.mark.parametrize(
    ("make", "count", "blocks"),
    [
        (resnet, 1, ["layer4"]),
        (resnet, 3, ["layer2", "layer3", "layer4"]),
        (gpt, 2, ["transformer.h.4", "transformer.h.5"]),
        (vit, 1, ["encoder.layers.encoder_layer_2"]),
        (bert, 3, [f"bert.encoder.layer.{number}" for number in (1, 2, 3)]),
        (lora, 1, ["base_model.model.model.layers.1"]),
        (mlp, 2, ["2", "4"]),
        (coop, 2, ["text_encoder.blocks.6", "text_encoder.blocks.7"]),
        (vit, 99, [f"encoder.layers.encoder_layer_{number}" for number in range(3)]),
    ],
)
def test_the_last_blocks(make, count: int, blocks: list[str]) -> None:
    model = make()
    assert paths(f":last-{count}-blocks", model) == starting(model, blocks) != set()


@pytest.mark.parametrize("make", [resnet, gpt, vit_with_head, bert, lora, mlp, coop])
def test_norms_and_biases(make) -> None:
    model = make()
    norms = {
        f"{path}.{name}"
        for path, module in model.named_modules()
        if isinstance(module, (nn.LayerNorm, nn.BatchNorm2d))
        for name, _ in module.named_parameters()
    }
    biases = {name for name, _ in model.named_parameters() if name.endswith("bias")}
    assert biases
    assert paths(":biases", model) == biases
    assert paths(":norms-and-biases", model) == norms | biases
    if norms:
        assert paths(":norms", model) == norms
    else:
        with pytest.raises(NothingSelected, match="no norm"):
            find(":norms", tree_of(model))


def test_lora_matrices() -> None:
    assert paths(":lora", lora()) == {name for name, _ in lora().named_parameters() if "lora_" in name}
    with pytest.raises(NothingSelected, match="lora_ in its path"):
        find(":lora", tree_of(gpt()))


def test_globs_and_expressions() -> None:
    model = gpt()
    assert paths("*.bias", model) == {name for name, _ in model.named_parameters() if name.endswith(".bias")}
    assert paths("transformer.h.[0-3]", model) == starting(model, [f"transformer.h.{number}" for number in range(4)])
    assert paths("transformer.h.[0-3].*", model) == paths(r"re:h\.[0-3]\.", model)
    assert paths("*.ln_?", model) == {name for name, _ in model.named_parameters() if ".ln_" in name}
    assert paths(r"re:^lm_head\.weight$", model) == {"transformer.wte.weight"}
    assert paths(r"re:ln_[12]\.(weight|bias){1,2}$", model) == {
        name for name, _ in model.named_parameters() if re.search(r"ln_[12]\.", name)
    }
    assert paths("transformer.h.0, :head , *.wpe", model) == paths("transformer.h.0", model) | {
        "transformer.wte.weight", "transformer.wpe.weight",
    }  # fmt: skip


def test_selections_are_joined_by_commas_and_plus() -> None:
    model = gpt()
    both = paths("transformer.h.0, :head", model)
    for written in ("transformer.h.0 + :head", "transformer.h.0+:head", r"re:h\.0\. + :head", r":head, re:h\.0\."):
        assert paths(written, model) == both
    assert find(r"re:h\.[0]+\. + :head", tree_of(model)).shown == r":head, re:h\.[0]+\."
    for parts in (("a", "re:x,y"), ("re:x+", "re:y")):
        assert joined(one_selection(parts)) == parts
    with pytest.raises(NothingSelected):
        find(" , ", tree_of(model))


def test_a_path_counts_before_any_other_reading() -> None:
    odd = nn.Module()
    odd.register_parameter("a,b", nn.Parameter(torch.zeros(2)))
    odd.register_parameter("a*", nn.Parameter(torch.zeros(2)))
    odd.register_parameter(":head", nn.Parameter(torch.zeros(2)))
    for path in ("a,b", "a*", ":head"):
        assert paths(path, odd) == {path}


def test_several_models_each_have_their_own_parts() -> None:
    tree = build([("g", mlp()), ("d", resnet())])
    found = {tree.parameters[index].path for index in find(":head", tree).indices}
    assert found == {"g.4.weight", "g.4.bias", "d.fc.weight", "d.fc.bias"}
    assert find("fc", tree) == find("d.fc", tree)


@pytest.mark.parametrize(
    ("selection", "answer"),
    [
        ("fcc", "there is no module or parameter 'fcc'; did you mean fc"),
        ("layer9.*", "nothing matches 'layer9.*'; did you mean layer"),
        ("re:layer9", "nothing matches 're:layer9'; did you mean layer"),
        ("re:(", "'re:(' is no regular expression: "),
        (r"re:(a)\1", "'re:(a)\\\\1' is no regular expression: backreferences are not supported"),
        (" + ".join(f"re:{number}" for number in range(65)), "it has more than 64 expressions and globs"),
        ("*a" * 501, "'*a*a"),
        (f":last-{'9' * 5_000}-blocks", "there is no preset"),
        (":haed", "there is no preset ':haed'; did you mean :head?"),
        (":", "there is no preset ':'; there are :all, :head"),
        (":last-0-blocks", "there is no preset ':last-0-blocks'; did you mean :last-N-blocks?"),
        ("fc, layer9.*", "nothing matches 'layer9.*'"),
    ],
)
def test_what_names_nothing_says_so_in_one_line(selection: str, answer: str) -> None:
    with pytest.raises(NothingSelected) as nothing:
        find(selection, tree_of(resnet()))
    assert str(nothing.value).startswith(answer)
    assert "\n" not in str(nothing.value)
    assert len(str(nothing.value)) < 400


@pytest.mark.parametrize("selection", [r"re:^(\w+\.?)+weight!$", "re:(.*)*!", "re:" + ".*" * 400 + "!", "*a" * 400])
def test_no_selection_takes_long(selection: str) -> None:
    began = process_time()
    with pytest.raises(NothingSelected):
        find(", ".join([selection] * 100) if "*a" in selection else selection, tree_of(resnet()))
    assert process_time() - began < 5


def test_presets_that_mean_something_are_offered() -> None:
    assert [choice.shown for choice in offered(tree_of(bert()))] == [
        ":head", ":last-1-blocks", ":last-2-blocks", ":norms", ":biases", ":norms-and-biases", ":all",
    ]  # fmt: skip
    assert ":lora" in [choice.shown for choice in offered(tree_of(lora()))]
    assert offered(ModuleTree()) == []
    for choice in offered(tree_of(lora())):
        assert choice == find(choice.shown, tree_of(lora()))
        assert choice.shown in PRESETS or choice.shown.startswith(":last-")


@given(st.text(max_size=30), st.sampled_from(["", "re:", ":", "*."]))
def test_typed_text_names_parameters_or_reason(text: str, start: str) -> None:
    tree = SMALL
    try:
        answer: object = find(start + text, tree).indices
    except NothingSelected as nothing:
        answer = str(nothing)
    assert answer if isinstance(answer, str) else set(answer) <= set(range(len(tree.parameters)))


SMALL = tree_of(mlp())


@pytest.mark.parametrize("selection", ["0", "encoder.*", "re:bias$", ":head", "a + b"])
def test_before_there_is_model_nothing_is_called_unknown(selection: str) -> None:
    with pytest.raises(NothingSelected, match=r"^there is no model yet$"):
        find(selection, build([]))
