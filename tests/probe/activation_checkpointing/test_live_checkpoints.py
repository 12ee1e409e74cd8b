"""Checkpointing put on and taken off while training: the same bits, and nothing that could not be computed again."""

from __future__ import annotations

import copy
import gc
import io
import os
import random
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from helpers.examples import combinations, examples
from helpers.programs import run_program
from helpers.training import square_step
from helpers.watched import Watched, watched
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradtui.probe.activation_checkpointing import determinism_trial
from gradtui.probe.commands.checkpointing.trial_vote import PATIENCE
from gradtui.protocol.commands import Command, SetCheckpointing, Undo
from gradtui.protocol.events import (
    CheckpointingChanged,
    CommandApplied,
    CommandRejected,
    ReceiptTaken,
    SavedBytesMeasured,
)
from gradtui.run.text import refusals

WIDTH = 8
TESTS = Path(__file__).parents[2]
Asked = Mapping[int, list[Callable[[int], Command]]]


def on(path: str) -> Callable[[int], Command]:
    return lambda number: SetCheckpointing(number, path, True)


def off(path: str) -> Callable[[int], Command]:
    return lambda number: SetCheckpointing(number, path, False)


class Plain(nn.Module):
    """Dropout, running statistics, a keyword argument."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.drop = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Dropout(0.3)
        self.out = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        return x + scale * self.out(self.drop(torch.tanh(self.inner(self.norm(x)))))


class Mapped(Plain):
    """Takes and gives a dictionary, with what is no tensor in it."""

    def forward(self, x: dict[str, Any], *, scale: float = 1.0) -> dict[str, Any]:
        return {"x": super().forward(x["x"], scale=scale), "calls": x["calls"] + 1, "name": "block"}


class Paired(Plain):
    """Gives a tuple of which one part is thrown away."""

    def forward(self, x: Tensor, *, scale: float = 1.0) -> tuple[Tensor, Tensor, int]:
        y = super().forward(x, scale=scale)
        return y, y.detach().mean(), 3


class Counting(Plain):
    """Its results depend on how often it was called, and on Python's, NumPy's and its own random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        self.calls += 1
        noise = torch.rand(x.shape, generator=self.generator)
        scale = scale * random.random() + 0.1 * self.calls + float(numpy.random.rand())
        return super().forward(x, scale=scale) + 0.01 * noise.tanh()


class Attending(nn.Module):
    """The same tensor three times, for which attention has a way of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        y, _ = self.attention(x[None], x[None], x[None])
        return x + scale * y[0]


def through(block: nn.Module, x: Tensor) -> Tensor:
    if isinstance(block, Mapped):
        return block({"x": x, "calls": 0}, scale=0.5)["x"]
    y = block(x, scale=0.5)
    return y[0] if isinstance(y, tuple) else y


class Net(nn.Module):
    def __init__(self, kinds: list[type[nn.Module]]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(kind() for kind in kinds)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = through(block, through(block, x)) if isinstance(block, Paired) else through(block, x)
        return self.head(x)


def train(kinds: list[type[nn.Module]], asked: Asked, *, steps: int = 8, autocast: bool = False) -> tuple[Any, Watched]:
    """Everything that a training leaves behind, to the bit, and what was told."""
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)
    model = Net(kinds)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with watched() as seen:
        for _ in seen.steps(steps, asked):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = model(torch.randn(6, WIDTH)).float().square().mean()
            loss.backward()
            optimizer.step()
            random_states = torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].tolist()
    bits = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    calls = [getattr(block, "calls", None) for block in model.blocks]
    return (bits, calls, random_states), seen


KINDS: list[type[nn.Module]] = [Plain, Mapped, Paired, Counting, Attending]


@pytest.mark.parametrize(("kind", "autocast"), combinations(KINDS, [False, True]))
def test_a_checkpointed_block_trains_to_the_same_bits(kind: type[nn.Module], autocast: bool) -> None:
    plain, _ = train([Plain, kind], {}, autocast=autocast)
    other, seen = train([Plain, kind], {2: [on("blocks.1")]}, autocast=autocast)
    assert other == plain
    (receipt,) = seen.all(ReceiptTaken)
    assert receipt.held, receipt.text
    totals = [event.total for event in seen.all(SavedBytesMeasured)]
    assert totals[-1] < totals[0]


@settings(max_examples=examples(5))
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
    changes=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 2), st.sampled_from(["on", "off", "undo"])), max_size=8
    ),
)
def test_bits_are_same_whatever_is_switched(kinds: list[type[nn.Module]], changes: list[tuple[int, int, str]]) -> None:
    asked: dict[int, list[Callable[[int], Command]]] = {}
    for step, block, what in changes:
        path = f"blocks.{block}"
        asked.setdefault(step, []).append(Undo if what == "undo" else on(path) if what == "on" else off(path))
    plain, _ = train(kinds, {}, steps=10)
    other, _ = train(kinds, asked, steps=10)
    assert other == plain


def test_receipt_says_how_kept_bytes_change() -> None:
    _, seen = train([Plain, Plain, Plain], {2: [on("blocks.1")], 8: [off("blocks.1")]}, steps=16)
    totals = {event.step: event.total for event in seen.all(SavedBytesMeasured)}
    # The step after the command is tried in, the next one is the first without the block's activations.
    assert totals[3] == totals[1] > totals[4] == totals[8] < totals[9] == totals[1]
    first, second = seen.all(ReceiptTaken)
    kib = [f"{totals[step] / 1024:.1f}" for step in (1, 4)]
    assert first.text == f"checkpoints blocks.1: activations {kib[0]} → {kib[1]} KiB"
    assert second.text == f"no longer checkpoints blocks.1: activations {kib[1]} → {kib[0]} KiB"
    paths = [module.path for module in seen.state.tree.modules]
    told = [[paths[index] for index in event.modules] for event in seen.all(CheckpointingChanged)]
    assert told == [["blocks.1"], []]
    saved = seen.all(SavedBytesMeasured)
    assert saved[-1].recomputed == ()
    marked = next(event for event in saved if event.step == 5)
    assert marked.recomputed[paths.index("blocks.1")] or marked.region_inputs[paths.index("blocks.1")]


def test_it_is_taken_back() -> None:
    _, seen = train([Plain], {1: [on("blocks.0")], 4: [Undo], 6: [Undo]})
    texts = [event.text for event in seen.all(CommandApplied)]
    assert texts[1] == "no longer checkpoints blocks.0"
    assert seen.state.tree.checkpointed == frozenset()
    assert seen.refusals() == ["there is nothing to undo"]


class Overwriting(nn.Module):
    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        return torch.relu_(x) * scale


class Unrepeatable(nn.Module):
    """Its random numbers come from where nobody looks."""

    hidden = random.Random(5)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        return x * (scale + Unrepeatable.hidden.random())


class Listing(nn.Module):
    """Keeps something in an object that it is given, as a cache of keys and values does."""

    def forward(self, x: Tensor, cache: Any = None, *, scale: float = 1.0) -> Tensor:
        return x.tanh() * scale


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Overwriting, "it writes to its input (as `inplace=True` does), so backward could not compute it again"),
        (Unrepeatable, "a second forward gave another output"),
    ],
)
def test_what_cannot_be_computed_again_is_given_up(kind: type[nn.Module], reason: str) -> None:
    Unrepeatable.hidden.seed(5)
    _, seen = train([Plain, kind], {2: [on("blocks.1")], 6: [Undo]})
    (receipt,) = seen.all(ReceiptTaken)
    assert (receipt.held, receipt.text) == (False, f"blocks.1 is not checkpointed: {reason}")
    assert seen.state.tree.checkpointed == frozenset()
    assert seen.all(CommandApplied)[1].text.startswith("blocks.1 ")


def test_a_cache_among_the_arguments_is_left_alone() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.block = nn.Linear(WIDTH, WIDTH), Listing()

        def forward(self, x: Tensor) -> Tensor:
            return self.block(self.one(x), object())

    receipt = checkpointing_one(Cached(), "block")[1].all(ReceiptTaken)[0]
    assert receipt.text.endswith(refusals.unknown_type("object"))


def test_what_is_overwritten_later_is_given_up() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.block = nn.Linear(WIDTH, WIDTH), nn.Sigmoid()

        def forward(self, x: Tensor) -> Tensor:
            x = self.one(x)
            y = self.block(x)  # keeps what it gives, not what it is given
            x += y
            return x

    receipt = checkpointing_one(Residual(), "block")[1].all(ReceiptTaken)[0]
    assert receipt.text.endswith(refusals.INPUT_OVERWRITTEN)


def checkpointing_one(
    model: nn.Module, path: str, steps: int = 6, call: Callable[..., Tensor] | None = None
) -> tuple[Any, Watched]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        for _ in seen.steps(steps, {1: on(path)}):
            square_step(call or model, optimizer, torch.linspace(-1, 1, 2 * WIDTH).view(2, WIDTH))
    return model, seen


def behind_a_layer(*modules: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *modules)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:`torch.jit:FutureWarning")
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "the whole model saves nothing"),
        ("2", "it contains TorchScript"),
        ("1.weight", "is a parameter, not a module"),
        ("17", "there is no module or parameter '17'"),
    ],
)
def test_refusals(path: str, words: str) -> None:
    model = behind_a_layer(nn.Linear(WIDTH, WIDTH), torch.jit.trace(nn.Linear(WIDTH, WIDTH), torch.ones(1, WIDTH)))
    (refusal,) = checkpointing_one(model, path)[1].all(CommandRejected)
    assert words in refusal.reason


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_compiled_module_is_refused() -> None:
    model = behind_a_layer(nn.Sequential(nn.Linear(WIDTH, WIDTH)))
    model[1].compile(backend="eager")
    (refusal,) = checkpointing_one(model, "1.0")[1].all(CommandRejected)
    assert refusal.reason == refusals.COMPILED


def test_inner_checkpoint_is_refused_and_outer_counts() -> None:
    _, seen = train([Plain], {1: [on("blocks.0")], 4: [on("blocks.0.inner")], 5: [on("blocks.0")]})
    reasons = seen.refusals()
    assert reasons == [refusals.within_checkpointed("blocks.0"), "that is already the case"]
    _, seen = train([Plain], {2: [on("blocks.0.inner")], 6: [on("blocks.0")]}, steps=12)
    assert "blocks.0.inner" in seen.all(CommandApplied)[1].text
    assert [receipt.held for receipt in seen.all(ReceiptTaken)] == [True, True]


def test_module_that_is_never_called_is_given_up() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    receipt = checkpointing_one(Unused(), "spare", steps=15)[1].all(ReceiptTaken)[0]
    assert not receipt.held
    assert receipt.text.endswith(refusals.not_called(PATIENCE))


@pytest.mark.parametrize("reentrant", [False, True])
def test_script_regions_are_left_as_they_are(reentrant: bool) -> None:
    def outcome(asked: bool) -> tuple[list[list[float]], list[bool]]:
        torch.manual_seed(2)
        model = behind_a_layer(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5), nn.Tanh()))

        def call(x: Tensor) -> Tensor:
            return checkpoint(model[1], model[0](x), use_reentrant=reentrant)

        _, seen = checkpointing_one(model, "1" if asked else "nothing", steps=15, call=call)
        return [p.tolist() for p in model.parameters()], [event.held for event in seen.all(ReceiptTaken)]

    plain, _ = outcome(False)
    other, held = outcome(True)
    assert other == plain
    assert held == [False]


def test_evaluation_costs_nothing_and_is_not_checkpointed() -> None:
    calls: list[int] = []

    class CountedLinear(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(1)
            return super().forward(x)

    model = behind_a_layer(CountedLinear(WIDTH, WIDTH), nn.Tanh())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, WIDTH)
    with watched() as seen:
        for _ in seen.steps(5, {1: on("1")}):
            model(x).square().mean().backward()
            optimizer.step()
        before = len(calls)
        with torch.no_grad():
            model(x)
        assert len(calls) == before + 1
        model(x).square().mean().backward()
        assert len(calls) == before + 3


def test_nothing_is_left_on_the_scripts_objects() -> None:
    torch.manual_seed(0)
    model = Net([Plain, Plain])
    attributes = {name: sorted(vars(module)) for name, module in model.named_modules()}
    keys = list(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        for _ in seen.steps(6, {1: on("blocks.0")}):
            model(torch.randn(4, WIDTH)).square().mean().backward()
            optimizer.step()
        assert seen.state.tree.checkpointed
        assert {name: sorted(vars(module)) for name, module in model.named_modules()} == attributes
        assert list(copy.deepcopy(model).state_dict()) == keys
        stream = io.BytesIO()
        torch.save(model, stream)
        assert type(model.blocks[0]) is Plain
        reference = weakref.ref(model.blocks[0])
    del model, optimizer
    gc.collect()
    assert reference() is None


def test_training_goes_on_after_probe_is_gone() -> None:
    model, seen = checkpointing_one(behind_a_layer(nn.Tanh(), nn.Linear(WIDTH, 1)), "1")
    assert seen.all(ReceiptTaken)[0].held
    assert seen.probe.step_sampler.checkpoints.wanted == {}
    assert nn.Module.__call__.__qualname__ == "Module._wrapped_call_impl"
    model(torch.ones(1, WIDTH)).sum().backward()


FRESH = """
import inspect, os, sys
import torch
import torch.utils.checkpoint
from torch import nn
from helpers.watched import watched
from gradtui.protocol.commands import SetCheckpointing

is_asked = os.fork() == 0
if not is_asked:
    os.wait()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh()))
with watched() as seen:
    for step in range(6):
        if step == 1 and is_asked:
            seen.submit(lambda number: SetCheckpointing(number, "1", True))
        model(torch.randn(3, 4)).square().mean().backward()
        for parameter in model.parameters():
            parameter.data -= 0.1 * parameter.grad
            parameter.grad = None
imports_dynamo = "torch._dynamo.config" in inspect.getsource(torch.utils.checkpoint)  # torch 2.6 does not
assert not (is_asked and imports_dynamo) or "torch._dynamo.config" in sys.modules
print([parameter.tolist() for parameter in model.parameters()], torch.get_rng_state().tolist(), flush=True)
"""
"""A process imports torch and forks. Its child is asked for a checkpoint and trains first, then the process trains without."""


@pytest.mark.slow
def test_first_checkpoint_of_process_draws_no_random_numbers() -> None:
    with_it, without = run_program(FRESH).stdout.splitlines()
    assert with_it == without


def test_error_of_scripts_shows_no_frame_of_ours() -> None:
    class Failing(nn.Linear):
        fails = False

        def forward(self, x: Tensor) -> Tensor:
            if self.fails:
                raise ValueError("the script's own")
            return super().forward(x)

    model = behind_a_layer(Failing(WIDTH, WIDTH), nn.Tanh())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        for _ in seen.steps(5, {1: on("1")}):
            model(torch.ones(2, WIDTH)).square().mean().backward()
            optimizer.step()
        assert seen.state.tree.checkpointed
        Failing.fails = True
        with pytest.raises(ValueError, match="the script's own") as raised:
            model(torch.ones(2, WIDTH))
    files = [str(entry.path) for entry in raised.traceback]
    # Those of torch's checkpoint are there, as they would be if the script had called it.
    assert not [file for file in files if f"{os.sep}gradtui{os.sep}" in file]


def test_function_transforms_are_left_alone() -> None:
    model = behind_a_layer(nn.Linear(WIDTH, 1), nn.Tanh())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.linspace(-1, 1, 2 * WIDTH).view(2, WIDTH)

    def loss(weights: dict[str, Tensor], sample: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (sample,)).sum()

    with watched() as seen:
        for _ in seen.steps(5, {1: on("1")}):
            model(x).square().mean().backward()
            optimizer.step()
        assert seen.state.tree.checkpointed
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        inside = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)
    outside = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)
    assert all(torch.equal(inside[name], outside[name]) for name in weights)


@pytest.mark.parametrize("name", ["moved_buffers", "_same", "tree_flatten"])
def test_failure_of_ours_is_trials_not_scripts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise LookupError("ours")

    plain, _ = train([Plain], {})
    monkeypatch.setattr(determinism_trial, name, broken)
    other, seen = train([Plain], {2: [on("blocks.0")]})
    assert other == plain
    (receipt,) = seen.all(ReceiptTaken)
    assert not receipt.held
    assert "LookupError: ours" in receipt.text
