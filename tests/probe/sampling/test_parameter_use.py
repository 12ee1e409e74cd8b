"""Frozen parameters of which autograd's graph says nothing: the operations of a recorded step show who reads them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.explained import short
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradtui.protocol.vocabulary import StateReason


class Text(nn.Module):
    """A frozen encoder whose embedding a prompt goes past."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.position = nn.Parameter(torch.randn(3, 4))
        self.mixers = nn.ParameterList([nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4))])
        self.unused = nn.ParameterList([nn.Parameter(torch.randn(4))])
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor | None, tokens: Tensor | None = None) -> Tensor:
        x = self.embed(tokens) if x is None else x
        x = (x + self.position) @ self.mixers[0].t() + self.mixers[1]
        return self.out((x + self.attention(x, x, x, need_weights=False)[0]).mean(1))


class TwoTowers(nn.Module):
    """A model that reads parameters itself: of a locked tower, and of what trains."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.image, self.block = nn.Embedding(10, 4), nn.Linear(6, 4), nn.Tanh()
        self.position, self.scale = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.ones(()))
        self.shift = nn.Parameter(torch.zeros(4))
        for each in (self.embed.weight, self.position, self.scale, self.shift):
            each.requires_grad_(False)

    def forward(self, images: Tensor, tokens: Tensor) -> Tensor:
        text = self.block(self.embed(tokens) + self.position).mean(1)
        return ((self.image(images) + self.shift) * self.scale) @ text.t()


def train(step: Callable[[], Tensor], parameters: list[nn.Parameter], steps: int = 4) -> Watched:
    with watched() as seen:
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            step().square().mean().backward()
            optimizer.step()
    return seen


def test_passed_is_off_and_traversed_passes() -> None:
    torch.manual_seed(0)
    text, prompt = Text().requires_grad_(False), nn.Parameter(torch.randn(2, 3, 4))
    seen = train(lambda: text(prompt), [prompt])
    letters = seen.letters()
    assert {path for path, letter in letters.items() if letter == "C"} == {"embed.weight", "unused.0"}
    assert set(letters.values()) == {"F", "C"}
    tree = seen.state.tree
    index = next(index for index, info in enumerate(tree.parameters) if info.path == "embed.weight")
    assert tree.reasons[index] == StateReason.NOT_USED.value
    words = "No operation of the forward used it when the operations of a step were last recorded."
    assert words in short(seen.state, ~index)


def test_parameter_read_by_model_has_its_operations() -> None:
    torch.manual_seed(0)
    model = TwoTowers()
    tokens = torch.randint(0, 10, (5, 3))
    letters = train(lambda: model(torch.randn(2, 6), tokens), [*model.image.parameters()]).letters()
    assert {path: letters[path] for path in ("position", "embed.weight", "scale", "shift")} == {
        "position": "C", "embed.weight": "C", "scale": "F", "shift": "F",
    }  # fmt: skip


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_reads_is_not_called_unused(reentrant: bool) -> None:
    torch.manual_seed(0)
    text, prompt = Text().requires_grad_(False), nn.Parameter(torch.randn(2, 3, 4))

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.text = text

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.text, x, use_reentrant=reentrant)

    model = Checkpointed()
    letters = train(lambda: model(prompt), [prompt]).letters()
    assert {letters[f"text.{path}"] for path in ("out.weight", "attention.in_proj_weight")} <= {"F", "-"}
    assert all(letters[f"text.mixers.{number}"] != "C" for number in (0, 1))


def test_embedding_used_again_is_not_unused() -> None:
    torch.manual_seed(0)
    text, prompt = Text().requires_grad_(False), nn.Parameter(torch.randn(2, 3, 4))
    tokens, calls = torch.randint(0, 10, (2, 3)), iter(range(100))

    def step() -> Tensor:
        return text(prompt) if next(calls) < 3 else text(None, tokens) + text(prompt)

    seen = train(step, [prompt], steps=6)
    index = next(index for index, info in enumerate(seen.state.tree.parameters) if info.path == "embed.weight")
    assert (seen.letters()["embed.weight"], seen.state.tree.reasons[index]) == ("C", StateReason.NONE.value)


class Pool(nn.Module):
    """Frozen parameters of which a step uses one, in a way that the test gives."""

    def __init__(self, use: Callable[[Pool, Tensor], Tensor]) -> None:
        super().__init__()
        self.pool = nn.ParameterList([nn.Parameter(torch.randn(4, 4), requires_grad=False) for _ in range(2)])
        self.views = [each.detach() for each in self.pool]
        self.mask: Tensor
        self.order: Tensor
        self.register_buffer("mask", torch.ones(4, 4))
        self.register_buffer("order", torch.arange(4))
        self.first, self.last, self.use = nn.Linear(4, 4), nn.Linear(4, 2), use

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.use(self, self.first(x)))

    def trainable(self) -> list[nn.Parameter]:
        return [*self.first.parameters(), *self.last.parameters()]


X = torch.linspace(-1, 1, 20).view(5, 4)
USES: dict[str, Callable[[Pool, Tensor], Tensor]] = {
    "itself": lambda m, h: h @ m.pool[0],
    "its data": lambda m, h: h @ m.pool[0].data,
    "a view from before": lambda m, h: h @ m.views[0],
    "a slice": lambda m, h: h + m.pool[0][0],
    "a cast": lambda m, h: h @ m.pool[0].double().float(),
    "chosen rows": lambda m, h: h @ m.pool[0][m.order],
    "a masked weight": lambda m, h: h @ (m.pool[0] * m.mask),
}


@pytest.mark.parametrize("name", USES)
def test_used_parameter_is_never_called_unused(name: str) -> None:
    torch.manual_seed(0)
    model = Pool(USES[name])
    letters = train(lambda: model(X), model.trainable()).letters()
    assert (letters["pool.0"], letters["pool.1"]) == ("F", "C")


def test_use_between_module_calls_stays_unclaimed() -> None:
    torch.manual_seed(0)
    model = Pool(USES["itself"])
    letters = train(lambda: model.last(model.first(X) @ model.pool[0]), model.trainable()).letters()
    assert {letters["pool.0"], letters["pool.1"]} <= {"F", "-"}


def test_parameter_used_by_later_step_is_found() -> None:
    torch.manual_seed(0)
    numbers = iter([0] * 4 + [1] * 400)
    model = Pool(lambda m, h: h @ m.pool[next(numbers)])
    letters = train(lambda: model(X), model.trainable(), steps=400).letters()
    assert (letters["pool.0"], letters["pool.1"]) == ("C", "F")
