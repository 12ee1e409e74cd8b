"""Rows that a command freezes keep their bits and those of their optimizer state, and the other rows train as ever."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from helpers.examples import combinations
from helpers.training import square_step
from helpers.watched import Watched, watched
from torch import nn

from gradtui.protocol.commands import SetRowsTrainable, SetTrainable, TrainOnly, Undo, VerifyFreeze
from gradtui.protocol.events import FreezeVerified, FrozenRowsChanged, RowsMasked
from gradtui.protocol.schedule import read
from gradtui.run.text import refusals

TOKENS = torch.tensor([[0, 3, 5, 7], [7, 1, 2, 6], [4, 4, 0, 7]])
FROZEN = slice(0, 5)
MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 0.05, weight_decay=0.1, amsgrad=True),
    "adamw one by one": lambda p: torch.optim.AdamW(p, 0.05, foreach=False),
    "adamw foreach": lambda p: torch.optim.AdamW(p, 0.05, foreach=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, 0.05, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.9, centered=True, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1, weight_decay=0.1),
    "rprop": lambda p: torch.optim.Rprop(p, 0.01),
}


class Words(nn.Module):
    """An embedding that is also the weight of the output layer."""

    def __init__(self, *, sparse: bool = False, tied: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(8, 4, sparse=sparse)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 8, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(self.embed(tokens))))


def freeze_rows(path: str, rows: str = "0:5", trainable: bool = False) -> Callable[[int], SetRowsTrainable]:
    return lambda id_: SetRowsTrainable(id_, path, trainable, rows)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, *, clip: float = 0.0, to_none: bool = True) -> None:
    optimizer.zero_grad(set_to_none=to_none)
    model(TOKENS).square().mean().backward()
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()


def state_of(optimizer: torch.optim.Optimizer, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    state = optimizer.state[weight].items()
    return {name: value.clone() for name, value in state if getattr(value, "shape", None) == weight.shape}


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    at: dict[int, list[Any]],
    steps: int = 16,
    one: Callable[..., None] = step,
    budget: float = 100.0,
) -> Watched:
    with watched(budget=budget) as seen:
        for _ in seen.steps(steps, at):
            one(model, optimizer)
    return seen


def one_by_hand(model: Words, optimizer: torch.optim.Optimizer, clip: float = 0.0) -> None:
    """The same in plain torch: the frozen rows train too, and are put back with their state."""
    weight = model.embed.weight
    optimizer.zero_grad()
    model(TOKENS).square().mean().backward()
    weight.grad[FROZEN] = 0
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    with torch.no_grad():
        kept, state = weight.clone(), state_of(optimizer, weight)
        optimizer.step()
        weight[FROZEN] = kept[FROZEN]
        for name, value in state.items():
            optimizer.state[weight][name][FROZEN] = value[FROZEN]


@pytest.mark.parametrize(("maker", "budget"), combinations(MAKERS, [100.0, 0.0]))
def test_frozen_rows_keep_bits_while_others_train(maker: str, budget: float) -> None:
    model, other = Words(), Words()
    optimizer, plain = MAKERS[maker](model.parameters()), MAKERS[maker](other.parameters())
    weight = model.embed.weight
    for _ in range(3):
        step(model, optimizer)
        step(other, plain)
    before, state = weight.detach().clone(), state_of(optimizer, weight)
    seen = train(model, optimizer, {0: [freeze_rows("embed.weight")]}, budget=budget)
    for _ in range(16):
        one_by_hand(other, plain)
    assert torch.equal(weight[FROZEN], before[FROZEN])
    assert not torch.equal(weight[5:], before[5:])
    for name, value in state_of(optimizer, weight).items():
        assert torch.equal(value[FROZEN], state[name][FROZEN]), name
    for one, two in zip(model.parameters(), other.parameters()):
        assert torch.equal(one, two)
    (verified,) = seen.all(FreezeVerified)
    assert (verified.rows, verified.steps, verified.moved) == (5, 10, ())
    assert "trains 3 of 8 rows" in seen.answers()[0]


def test_clipping_counts_the_rows_that_train() -> None:
    model, other = Words(), Words()
    optimizer, plain = MAKERS["momentum"](model.parameters()), MAKERS["momentum"](other.parameters())
    train(model, optimizer, {0: [freeze_rows("embed.weight")]}, one=lambda *of: step(*of, clip=0.01))
    for _ in range(16):
        one_by_hand(other, plain, 0.01)
    assert torch.equal(model.embed.weight, other.embed.weight)
    assert torch.equal(model.body.weight, other.body.weight)


def test_sparse_gradients_lose_the_rows() -> None:
    """SparseAdam steps only rows of the gradient, so that its state of others stays."""

    def built() -> tuple[nn.Embedding, torch.optim.Optimizer]:
        torch.manual_seed(0)
        embed = nn.Embedding(8, 4, sparse=True)
        return embed, torch.optim.SparseAdam(embed.parameters(), 0.05)

    def one(embed: nn.Embedding, optimizer: torch.optim.Optimizer, *, tokens: torch.Tensor = TOKENS) -> None:
        optimizer.zero_grad()
        embed(tokens).sin().sum().backward()
        optimizer.step()

    (embed, optimizer), (other, plain) = built(), built()
    before = embed.weight.detach().clone()
    train(embed, optimizer, {0: [freeze_rows("weight")]}, one=one)
    for _ in range(16):
        one(other, plain, tokens=TOKENS[TOKENS >= 5])
    assert torch.equal(embed.weight[FROZEN], before[FROZEN])
    assert torch.equal(embed.weight, other.weight)
    state, expected = state_of(optimizer, embed.weight), state_of(plain, other.weight)
    assert state.keys() == {"exp_avg", "exp_avg_sq"}
    for name, value in state.items():
        assert torch.equal(value, expected[name])


@pytest.mark.parametrize("enabled", [True, False])
def test_loss_scaler_sees_rows_that_train_only(enabled: bool) -> None:
    """Inf in the gradient of a frozen row skips no step."""
    model, scaler = Words(tied=False), torch.amp.GradScaler("cpu", enabled=enabled, init_scale=4.0)
    optimizer = MAKERS["adamw foreach"](model.parameters())
    model.head.weight.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor([2]), float("inf")))
    before = model.head.weight.detach().clone()

    def one(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        scaler.scale(model(TOKENS).square().mean()).backward()
        scaler.unscale_(optimizer)
        assert nn.utils.clip_grad_norm_(model.parameters(), 1.0).isfinite()
        scaler.step(optimizer)
        scaler.update()

    train(model, optimizer, {0: [freeze_rows("head.weight")]}, one=one)
    assert optimizer.state[model.head.weight]["step"] == 16
    assert torch.equal(model.head.weight[FROZEN], before[FROZEN])
    assert model.head.weight.isfinite().all()
    assert not torch.equal(model.head.weight[5:], before[5:])


def test_accumulation_closures_and_several_optimizers() -> None:
    model = Words(tied=False)
    first = MAKERS["momentum"]([model.embed.weight, *model.body.parameters()])
    second = MAKERS["momentum"](model.head.parameters())
    before = [model.embed.weight.detach().clone(), model.head.weight.detach().clone(), model.body.bias.detach().clone()]

    def one(model: nn.Module, _: torch.optim.Optimizer) -> None:
        for _ in range(2):
            model(TOKENS).square().mean().backward()
        second.step()

        def closure() -> float:
            first.zero_grad(set_to_none=False)
            loss = model(TOKENS).square().mean()
            loss.backward()
            return float(loss.detach())

        first.step(closure)
        second.zero_grad(set_to_none=False)

    frozen = [freeze_rows("embed.weight"), freeze_rows("head.weight", "-2:"), freeze_rows("body.bias", "0,2")]
    seen = train(model, first, {0: frozen}, one=one)
    embed, head, bias = before
    assert torch.equal(model.embed.weight[FROZEN], embed[FROZEN])
    assert torch.equal(model.head.weight[-2:], head[-2:])
    assert torch.equal(model.body.bias[[0, 2]], bias[[0, 2]])
    assert not torch.equal(model.embed.weight[5:], embed[5:])
    assert not torch.equal(model.head.weight[:-2], head[:-2])
    assert not torch.equal(model.body.bias[[1, 3]], bias[[1, 3]])
    assert all(event.moved == () for event in seen.all(FreezeVerified))


def test_self_decaying_subclass_and_failing_step() -> None:
    class Decaying(torch.optim.SGD):
        fails = False

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            for parameter in self.param_groups[0]["params"]:
                parameter.mul_(0.9)
            super().step()
            if self.fails:
                raise RuntimeError("after the step")
            for parameter in self.param_groups[0]["params"]:
                parameter.mul_(0.9)

    model = Words()
    optimizer = Decaying(model.parameters(), 0.1)
    before, seen_by_hook = model.embed.weight.detach().clone(), []
    optimizer.register_step_post_hook(lambda *_: seen_by_hook.append(model.embed.weight[FROZEN].clone()))

    def one(model: nn.Module, optimizer: Any) -> None:
        optimizer.fails = len(seen_by_hook) == 4
        try:
            step(model, optimizer)
        except RuntimeError:
            seen_by_hook.append(before[FROZEN])
            # The script puts back what the failed step has left.
            model.embed.weight.data.copy_(before)

    train(model, optimizer, {0: [freeze_rows("embed.weight")]}, one=one)
    assert torch.equal(model.embed.weight[FROZEN], before[FROZEN])
    assert all(torch.equal(values, before[FROZEN]) for values in seen_by_hook)
    assert not torch.equal(model.embed.weight[5:], before[5:])


def test_what_the_script_writes_stays_and_is_named() -> None:
    model = Words()
    optimizer = MAKERS["adam"](model.parameters())

    def one(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        step(model, optimizer)
        model.embed.weight.data[1] = 7.0

    seen = train(model, optimizer, {0: [freeze_rows("embed.weight")], 15: [VerifyFreeze]}, one=one)
    assert (model.embed.weight[1] == 7).all()
    (verified,) = seen.all(FreezeVerified)
    assert verified.moved == ("embed.weight",)
    said = "of 5 rows of embed.weight moved: embed.weight (written by the script outside of its optimizers' steps)"
    assert seen.answers()[1] == said


def held(seen: Watched) -> list[tuple[str, int, int]]:
    return [(each.rows, each.frozen, each.count) for event in seen.all(FrozenRowsChanged) for each in event.parameters]


def test_freezes_add_up_and_unfreezes_take_away() -> None:
    model = Words()
    optimizer = MAKERS["adam"](model.parameters())
    weight = model.embed.weight
    at = {
        0: [freeze_rows("embed.weight", "0:2")],
        2: [freeze_rows("embed", "1:5")],
        4: [freeze_rows("embed.weight", "1", trainable=True)],
        6: [Undo],
        8: [freeze_rows("embed.weight", ":", trainable=True)],
        10: [Undo],
        12: [lambda id_: SetTrainable(id_, "embed.weight", True)],
        14: [Undo],
        15: [lambda id_: TrainOnly(id_, "embed.weight")],
    }
    kept: list[torch.Tensor] = []

    def one(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        step(model, optimizer)
        kept.append(weight.detach().clone())

    seen = train(model, optimizer, at, one=one)
    two, five, four = ("0:2", 2, 8), ("0:5", 5, 8), ("0,2:5", 4, 8)
    assert held(seen) == [two, five, four, five, five, five]
    moved = [[not torch.equal(now[row], then[row]) for row in (0, 1, 2, 7)] for then, now in pairwise(kept)]
    # By step from the second: which of these rows moved.
    frozen = {1: 2, 2: 5, 3: 5, 4: 4, 5: 4, 6: 5, 7: 5, 8: 0, 9: 0, 10: 5, 11: 5, 12: 0, 13: 0, 14: 5, 15: 0}
    masks = {2: [0, 0, 1, 1], 5: [0, 0, 0, 1], 4: [0, 1, 0, 1], 0: [1, 1, 1, 1]}
    assert moved == [[bool(each) for each in masks[frozen[number]]] for number in range(1, 16)]


def test_rows_of_frozen_parameter_begin_to_train_alone() -> None:
    model = Words(tied=False)
    model.embed.weight.requires_grad_(False)
    optimizer = MAKERS["adamw fused"]([*model.body.parameters(), *model.head.parameters()])
    before = model.embed.weight.detach().clone()
    at = {2: [freeze_rows("embed.weight", "5:", trainable=True)], 12: [Undo]}
    values: list[torch.Tensor] = []

    def one(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        step(model, optimizer)
        values.append(model.embed.weight.detach().clone())

    seen = train(model, optimizer, at, one=one)
    assert torch.equal(values[1], before)
    assert torch.equal(values[-1][FROZEN], before[FROZEN])
    assert not torch.equal(values[11][5:], before[5:])
    assert torch.equal(values[11], values[-1])
    assert not model.embed.weight.requires_grad
    assert "joined AdamW" in seen.answers()[0]
    assert "trains 3 of 8 rows" in seen.answers()[0]


@pytest.mark.parametrize(
    ("maker", "why"),
    [
        (
            lambda p: torch.optim.LBFGS(p),
            refusals.rows_together("LBFGS", "searches one step for all parameters together"),
        ),
        (
            lambda p: torch.optim.Adafactor(p),
            refusals.rows_together("Adafactor", "keeps one state for all rows of a column"),
        ),
    ],
)
def test_optimizer_with_dependent_rows_is_refused(maker: Any, why: str) -> None:
    model = Words()
    optimizer = maker(model.parameters())

    def one(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(TOKENS).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)

    seen = train(model, optimizer, {1: [freeze_rows("embed.weight")]}, steps=3, one=one)
    assert seen.answers() == [why]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (freeze_rows("body"), refusals.rows_of_one("body", "2 parameters", "body.weight")),
        (freeze_rows(""), refusals.rows_of_one("the model", "3 parameters", "embed.weight")),
        (freeze_rows("embed.weight", "0:9"), "0:9 goes beyond the rows of the parameter, which are 0 to 7"),
        (freeze_rows("embed.weight", "x"), "'x' names no rows: write 0:32000, 5, 32000: or 0:10,20:30"),
        (freeze_rows("embed.weight", ":"), refusals.rows_are_all(8, "embed.weight")),
        (freeze_rows("embed.weight", "1", trainable=True), refusals.already("embed.weight", "trainable")),
        (freeze_rows("body.bias", "1"), refusals.ROWS_OF_FROZEN),
    ],
)
def test_refusals(command: Any, why: str) -> None:
    model = Words()
    model.body.bias.requires_grad_(False)
    optimizer = MAKERS["sgd"](model.parameters())
    seen = train(model, optimizer, {1: [command]}, steps=3)
    assert seen.answers() == [why]
    assert held(seen) == []


def test_nothing_of_gradtui_is_left_on_the_objects() -> None:
    model = Words()
    optimizer = MAKERS["adam"](model.parameters())

    def hooks() -> list[int]:
        dictionaries = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
        own = [getattr(each, "_post_accumulate_grad_hooks", None) or {} for each in model.parameters()]
        return [len(each) for each in (*dictionaries, *own)]

    with watched() as seen:
        step(model, optimizer)
        assert not any(hooks())
        seen.submit(freeze_rows("embed.weight"))
        step(model, optimizer)
        assert hooks() == [1, 1, 1, 0, 0]
        seen.submit(Undo)
        step(model, optimizer)
        assert not any(hooks())
        seen.submit(freeze_rows("embed.weight"))
        step(model, optimizer)
    assert not any(hooks())


def test_figures_are_of_the_rows_that_train() -> None:
    """With a rate of 1e-3, a step of Adam moves each element by about that: rows that do not move are not among them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(4096, 4), nn.Linear(4, 4))
    with torch.no_grad():
        model[0].weight.fill_(1.0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def one(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        square_step(model, optimizer, torch.arange(4096))

    seen = train(model, optimizer, {0: [freeze_rows("0.weight", ":4093")]}, steps=4, one=one)
    _, figures = seen.state.tree.gradient_figures[0]
    assert figures.update_ratio == pytest.approx(1e-3, rel=0.05)
    assert figures.zero_fraction == 0
    assert figures.weight_norm == pytest.approx((3 * 4) ** 0.5, rel=0.01)
    assert figures.elements == 3 * 4


def test_schedule_holds_rows_from_first_step_on() -> None:
    """The optimizer makes its state during the freeze: of a row without a gradient Adam's moments are zeros."""
    model = Words()
    optimizer = MAKERS["adamw foreach"](model.parameters())
    before = model.embed.weight.detach().clone()
    entry = read({"do": [{"step": 0, "command": "freeze_rows", "path": "embed.weight", "rows": ":5"}]})
    with watched(schedule=entry) as seen:
        for _ in range(12):
            step(model, optimizer)
    assert torch.equal(model.embed.weight[FROZEN], before[FROZEN])
    assert all(not value[FROZEN].any() for value in state_of(optimizer, model.embed.weight).values())
    assert "copies 80 B" in seen.answers()[0]
    assert [event.moved for event in seen.all(FreezeVerified)] == [()]


def test_they_are_no_masked_rows_of_the_script() -> None:
    """Rows whose gradient the script sets to zero by hand are evidence of GT122; these do not move."""

    def by_hand(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(TOKENS).square().mean().backward()
        model.embed.weight.grad[FROZEN] = 0
        optimizer.step()

    for one, at, found in ((by_hand, {}, True), (step, {0: [freeze_rows("embed.weight")]}, False)):
        model = Words()
        seen = train(model, MAKERS["momentum"](model.parameters()), at, one=one)
        assert bool(seen.all(RowsMasked)) is found


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_compiled_models_and_steps() -> None:
    model = Words()
    optimizer = MAKERS["adamw foreach"](model.parameters())
    weight = model.embed.weight
    compiled, real = torch.compile(model, backend="eager"), optimizer.step
    compiled_step = torch.compile(lambda: real(), backend="eager")

    def one(*_: object) -> None:
        optimizer.zero_grad()
        compiled(TOKENS).square().mean().backward()
        compiled_step()

    # Both are compiled before any row is frozen.
    one()
    before, state = weight.detach().clone(), state_of(optimizer, weight)
    seen = train(model, optimizer, {0: [freeze_rows("embed.weight")]}, one=one)
    assert torch.equal(weight[FROZEN], before[FROZEN])
    assert not torch.equal(weight[5:], before[5:])
    for name, value in state_of(optimizer, weight).items():
        assert torch.equal(value[FROZEN], state[name][FROZEN])
    assert all(event.moved == () for event in seen.all(FreezeVerified))
