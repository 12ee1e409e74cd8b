"""Which layers are of one kind."""

from __future__ import annotations

from helpers.fakes import Node, found

from gradtui.tui.plots.kinds import kinds_of

WEIGHT = (("weight", (2, 2)),)


def layer(name: str, kind: str = "Linear") -> Node:
    return Node(name, kind, WEIGHT)


def kinds(root: Node) -> list[tuple[str, list[str]]]:
    modules = found(root).modules
    return [(kind.name, [modules[index].path for index in kind.modules]) for kind in kinds_of(modules)]


def block(name: str) -> Node:
    mlp = Node("mlp", "Sequential", (), (layer("0"), Node("1", "GELU"), layer("2")))
    attention = Node("attn", "Attention", (), (layer("qkv"), layer("proj")))
    return Node(name, "Block", (), (layer("norm1", "LayerNorm"), attention, layer("norm2", "LayerNorm"), mlp))


def test_layers_at_place_are_of_kind() -> None:
    blocks = Node("blocks", "ModuleList", (), tuple(block(str(index)) for index in range(3)))
    net = Node("GPT", "GPT", (), (layer("wte", "Embedding"), blocks, layer("norm", "LayerNorm"), layer("head")))
    assert kinds(net) == [
        (name, [f"blocks.{index}.{name}" for index in range(3)])
        for name in ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.0", "mlp.2")
    ] + [("", ["wte", "norm", "head"])]


def test_stages_of_convolutional_network_are_blocks_too() -> None:
    def stage(name: str) -> Node:
        inside = tuple(
            Node(str(index), "Basic", (), (layer("conv1", "Conv2d"), layer("bn1", "BatchNorm2d"))) for index in (0, 1)
        )
        return Node(name, "Sequential", (), inside)

    net = Node("ResNet", "ResNet", (), (layer("conv1", "Conv2d"), stage("layer1"), stage("layer2"), layer("fc")))
    places = [f"layer{number}.{index}" for number in (1, 2) for index in (0, 1)]
    assert kinds(net) == [
        ("conv1", [f"{place}.conv1" for place in places]),
        ("bn1", [f"{place}.bn1" for place in places]),
        ("", ["conv1", "fc"]),
    ]


def test_without_blocks_the_type_decides() -> None:
    parts = (layer("0", "Conv2d"), layer("1", "BatchNorm2d"), layer("2", "Conv2d"), layer("3", "BatchNorm2d"))
    net = Node("VGG", "Sequential", (), (*parts, layer("4")))
    assert kinds(net) == [("Conv2d", ["0", "2"]), ("BatchNorm2d", ["1", "3"]), ("", ["4"])]


def test_a_plain_stack_of_layers_is_one_kind() -> None:
    net = Node("Net", "Net", (), tuple(layer(str(index)) for index in range(4)))
    assert [members for _, members in kinds(net)] == [["0", "1", "2", "3"]]


def test_alike_stacks_have_own_names() -> None:
    def tower(name: str) -> Node:
        blocks = Node("blocks", "ModuleList", (), tuple(Node(str(i), "Block", (), (layer("fc"),)) for i in range(3)))
        return Node(name, name, (), (blocks,))

    net = Node("Clip", "Clip", (), (tower("text"), tower("image")))
    assert [name for name, _ in kinds(net)] == ["text.blocks.*.fc", "image.blocks.*.fc"]


def test_names_of_any_characters_and_no_modules() -> None:
    assert kinds_of(()) == []
    odd = Node("a*.b\x1b[31m", "B", (), (layer("0\n"), layer("é1"), layer("")))
    assert sorted(path for _, members in kinds(odd) for path in members) == sorted(["0\n", "é1", ""])
