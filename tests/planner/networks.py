"""Networks that treat the batch in many ways.

`NETWORKS` maps a name to a function of the batch size, the length of sequences and the number of heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

WIDTH = 16
CLASSES = 4


class Made(NamedTuple):
    """A network and what it takes."""

    model: nn.Module
    inputs: tuple[Tensor, ...]


class Network(nn.Module):
    """A forward written as a function of the module and the inputs, with the parts that it uses."""

    def __init__(self, function: Callable[..., Tensor], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(self, *inputs)


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape))


def floats(*shape: int) -> Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape)


def linear(outputs: int = WIDTH) -> nn.Linear:
    return nn.Linear(WIDTH, outputs)


class Doubled(torch.autograd.Function):
    """A custom function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.mul(2.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2.0


def encoder(batch: int, length: int, heads: int, *, batch_first: bool) -> Made:
    layer = nn.TransformerEncoderLayer(WIDTH, heads, 32, dropout=0.1, batch_first=batch_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Made(model, (floats(batch, length, WIDTH) if batch_first else floats(length, batch, WIDTH),))


def _class_token(net: Any, x: Tensor) -> Tensor:
    x = torch.cat([net.token.expand(x.shape[0], -1, -1), x], 1) + net.positions
    return net.layer(x)[:, 0]  # type: ignore[no-any-return]


def class_token(batch: int, length: int, heads: int) -> Made:
    layer = nn.TransformerEncoderLayer(WIDTH, heads, 32, batch_first=True)
    net = Network(_class_token, token=parameter(1, 1, WIDTH), positions=parameter(1, length + 1, WIDTH), layer=layer)
    return Made(net, (floats(batch, length, WIDTH),))


def _causal(net: Any, x: Tensor) -> Tensor:
    at = torch.arange(x.shape[1])
    query = net.query(x)
    scores = (query @ query.mT).masked_fill(at[:, None] < at[None], -1e9)
    return scores.softmax(-1) @ x  # type: ignore[no-any-return]


def _expanded_mask(net: Any, x: Tensor) -> Tensor:
    batch, length, _ = x.shape
    mask = torch.full((length, length), -1e9).triu(1).expand(batch, 1, length, length)
    query = net.query(x).view(batch, length, 2, 8).transpose(1, 2)
    return ((query @ query.mT) + mask).softmax(-1) @ query  # type: ignore[no-any-return]


def _relative(net: Any, x: Tensor) -> Tensor:
    batch, length, _ = x.shape
    at = torch.arange(length)
    bias = net.bias(at[None] - at[:, None] + length).permute(2, 0, 1)[None]
    query = net.query(x).view(batch, length, 2, 8).transpose(1, 2)
    return (query @ query.mT + bias).softmax(-1) @ query  # type: ignore[no-any-return]


def _positions(net: Any, x: Tensor) -> Tensor:
    return net.query(x + net.embedding(net.numbers[:, : x.shape[1]]))  # type: ignore[no-any-return]


def positions(batch: int, length: int, _: int) -> Made:
    net = Network(_positions, query=linear(), embedding=nn.Embedding(64, WIDTH))
    net.register_buffer("numbers", torch.arange(64)[None])
    return Made(net, (floats(batch, length, WIDTH),))


def _gather(net: Any, x: Tensor, index: Tensor) -> Tensor:
    taken = net.query(x).gather(1, index[:, None, None].expand(-1, 1, WIDTH)).squeeze(1)
    spread = torch.zeros(x.shape[0], WIDTH).scatter(1, index[:, None], 1.0)
    return torch.stack([taken, spread], 1)[torch.arange(len(x)), index % 2]


def _steps(net: Any, x: Tensor) -> Tensor:
    state = torch.zeros(x.shape[0], WIDTH)
    for each in x.unbind(1):
        state = net.cell(each, state)
    return state


def _einsum(net: Any, x: Tensor) -> Tensor:
    return torch.einsum("bqd,bkd->bqk", net.query(x), x)


def _checkpointed(net: Any, x: Tensor) -> Tensor:
    return net.head(checkpoint(net.block, x, use_reentrant=False))  # type: ignore[no-any-return]


def _in_place(net: Any, x: Tensor) -> Tensor:
    y = net.query(x)
    y += 1
    y.mul_(2)
    held = x.new_zeros(x.shape[0], WIDTH)
    held[:] = y[:, 0]
    return held.add_(1)


def _dropped_paths(net: Any, x: Tensor) -> Tensor:
    y = net.query(x)
    return x + y * y.new_empty((x.shape[0], 1, 1)).bernoulli_(0.5)


def _noise(net: Any, x: Tensor) -> Tensor:
    return net.query(x) + net.other(torch.ones(x.shape[0], WIDTH))[:, None]  # type: ignore[no-any-return]


def _two_views(net: Any, x: Tensor) -> Tensor:
    first, second = net.query(torch.cat([x, x + 1])).chunk(2)
    return (first * second).sum(-1)  # type: ignore[no-any-return]


def _between(net: Any, x: Tensor) -> Tensor:
    return net.head(Doubled.apply(net.query(x)))  # type: ignore[no-any-return, no-untyped-call]


def _mean_loss(net: Any, x: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(net.query(x), target)


def convolutions(batch: int, _: int, __: int) -> Made:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.GroupNorm(2, 8), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * 16, CLASSES),
    )  # fmt: skip
    return Made(model, (floats(batch, 3, 8, 8),))


def _samples_one_by_one(net: Any, x: Tensor) -> Tensor:
    return torch.stack([net.query(x[at]) for at in range(len(x))])


def _chosen_by_value(net: Any, x: Tensor) -> Tensor:
    y = net.query(x)
    return y[y[..., 0] > -10.0]  # type: ignore[no-any-return]


def _each_with_each(net: Any, x: Tensor) -> Tensor:
    y = net.query(x).flatten(1)
    return y @ y.T  # type: ignore[no-any-return]


def _two_towers(net: Any, x: Tensor, y: Tensor) -> Tensor:
    return net.query(x) @ net.other(y).T  # type: ignore[no-any-return]


def _prompts(net: Any, x: Tensor) -> Tensor:
    prompts = torch.cat([net.names, net.context.expand(len(net.names), -1, -1)], 1)
    return net.image(x) @ net.text(prompts).mean(1).T  # type: ignore[no-any-return]


def prompts(batch: int, classes: int) -> Made:
    """As CoOp: the text side has the classes where the image side has the batch."""
    net = Network(_prompts, context=parameter(2, WIDTH), text=linear(), image=linear())
    net.names = floats(classes, 1, WIDTH)
    return Made(net, (floats(batch, WIDTH),))


def _recurrent(net: Any, x: Tensor) -> Tensor:
    return net.layer(x)[0]  # type: ignore[no-any-return]


def _of(function: Callable[..., Tensor], **parts: Callable[[], nn.Module]) -> Callable[[int, int, int], Made]:
    """Return a network that takes sequences."""
    return lambda batch, length, _: Made(
        Network(function, **{name: part() for name, part in parts.items()}), (floats(batch, length, WIDTH),)
    )


NETWORKS: dict[str, Callable[[int, int, int], Made]] = {
    "encoder": lambda batch, length, heads: encoder(batch, length, heads, batch_first=True),
    "class token": class_token,
    "causal mask": _of(_causal, query=linear),
    "expanded mask": _of(_expanded_mask, query=linear),
    "relative positions": lambda batch, length, _: Made(
        Network(_relative, query=linear(), bias=nn.Embedding(2 * length, 2)), (floats(batch, length, WIDTH),)
    ),
    "positions": positions,
    "gather and scatter": lambda batch, length, _: Made(
        Network(_gather, query=linear()), (floats(batch, length, WIDTH), torch.arange(batch) % length)
    ),
    "recurrent steps": _of(_steps, cell=lambda: nn.GRUCell(WIDTH, WIDTH)),
    "einsum": _of(_einsum, query=linear),
    "checkpointed": _of(_checkpointed, block=lambda: nn.Sequential(linear(), nn.Tanh()), head=lambda: linear(2)),
    "in place": _of(_in_place, query=linear),
    "dropped paths": _of(_dropped_paths, query=linear),
    "noise": _of(_noise, query=linear, other=linear),
    "two views": lambda batch, _, __: Made(Network(_two_views, query=linear()), (floats(batch, WIDTH),)),
    "custom function": _of(_between, query=linear, head=linear),
    "mean loss": lambda batch, _, __: Made(
        Network(_mean_loss, query=linear(CLASSES)), (floats(batch, WIDTH), torch.arange(batch) % CLASSES)
    ),
    "convolutions": convolutions,
}
REFUSED: dict[str, tuple[Callable[[int, int, int], Made], str]] = {
    "samples one by one": (_of(_samples_one_by_one, query=linear), "takes one sample"),
    "chosen by value": (_of(_chosen_by_value, query=linear), "without the data"),
    "each with each": (_of(_each_with_each, query=linear), "compares each sample"),
    "two towers": (
        lambda batch, _, __: Made(
            Network(_two_towers, query=linear(), other=nn.Linear(8, WIDTH)), (floats(batch, WIDTH), floats(batch, 8))
        ),
        "compares each sample",
    ),
    "LSTM": (_of(_recurrent, layer=lambda: nn.LSTM(WIDTH, WIDTH, batch_first=True)), "is not known"),
    "as many classes as samples": (lambda batch, _, __: prompts(batch, batch), "compares each sample"),
}
SECOND: dict[str, Callable[[int, int, int], Made]] = {
    "encoder": lambda batch, length, heads: encoder(batch, length, heads, batch_first=False),
    "GRU": lambda batch, length, _: Made(
        Network(_recurrent, layer=nn.GRU(WIDTH, WIDTH)), (floats(length, batch, WIDTH),)
    ),
}
"""Networks whose inputs have the batch in the second dimension."""
