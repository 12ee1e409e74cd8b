"""Every parameter state, reached by training: on the zoo and on a model like CoOp's, with the sentence that `enter` shows.

| state | on the zoo | on the CoOp-like model | of this very parameter it says |
|---|---|---|---|
| T | `mlp` | the prompt | the chain down to it |
| Z | LoRA's first step | the prompt, with a loss times zero | – |
| U | `unused_branch`, `under_no_grad` | one adapter uncalled, one detached | why the gradient never comes |
| F | `frozen_encoder_with_prompt` | the text encoder | where the gradient passes on to |
| C | `frozen_prefix` | the image encoder | why the gradient never comes |
| O | `mlp`, its first layer left out | the scale, left out of the optimizer | that no optimizer has it |
| M | `mlp` frozen under momentum | the text encoder's weight, written to | – |
| N | `mlp`, its loss times NaN | the prompt, its loss times NaN | how many elements |
| S | `grad_scaler` | the prompt, its scaled loss infinite | how many steps were left out |
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from helpers import loops
from helpers.lines import line_text
from helpers.watched import Watched, watched
from torch import Tensor, nn
from zoo import SPECIMENS
from zoo.attention import WIDTH, Block

from gradtui.protocol.commands import TraceGradient
from gradtui.protocol.vocabulary import STATE_NAMES, ParameterState
from gradtui.run.state.model_records import model_records
from gradtui.run.text.explanation.states import STATE_MEANINGS as MEANINGS
from gradtui.run.text.models import record_text
from gradtui.run.text.problem_states import state_reason
from gradtui.tui.explanations.explanations import explain
from gradtui.tui.rendering.lines import detail_lines

IMAGES = torch.linspace(-1, 1, 48).view(6, 8)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


class CoOp(nn.Module):
    """A prompt before a frozen text encoder, beside a frozen image encoder; with what people leave lying about."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.ctx = nn.Parameter(0.02 * torch.randn(4, WIDTH))
            self.logit_scale = nn.Parameter(torch.tensor(1.0))
            self.text_encoder = nn.Sequential(Block(), Block(), Block(), Block()).requires_grad_(False)
            self.image_encoder = nn.Sequential(nn.Linear(8, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
            self.image_encoder.requires_grad_(False)
            self.adapter, self.spare = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.register_buffer("names", torch.randn(3, 1, WIDTH))

    def forward(self, images: Tensor) -> Tensor:
        features = self.image_encoder(images)
        features = features + self.adapter(features).detach()
        names: Tensor = self.names  # type: ignore[assignment]
        texts = self.text_encoder(torch.cat([self.ctx.expand(3, -1, -1), names], dim=1))[:, -1]
        return self.logit_scale.exp() * nn.functional.normalize(features) @ nn.functional.normalize(texts).T


def coop(
    path: str, factor: float = 1.0, prepare: Callable[[CoOp], object] = lambda model: None,
    within: Callable[[CoOp, int], object] = lambda model, step: None, scaler: torch.amp.GradScaler | None = None,
) -> Watched:  # fmt: skip
    """Three steps of training; the last one's loss times `factor`."""
    model = CoOp()
    prepare(model)
    with watched() as seen:
        trained = [p for name, p in model.named_parameters() if p.requires_grad and name != "logit_scale"]
        optimizer = torch.optim.SGD(trained, lr=0.01)
        for step in range(3):
            seen.submit(lambda number: TraceGradient(number, path))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(IMAGES), LABELS) * (factor if step == 2 else 1.0)
            (scaler.scale(loss) if scaler is not None else loss).backward()  # type: ignore[no-untyped-call]
            within(model, step)
            if scaler is not None:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
    return seen


def zoo(
    name: str, path: str, steps: int = 2, loop: loops.Loop = loops.plain,
    prepare: Callable[[nn.Module], object] = lambda model: None,
) -> Watched:  # fmt: skip
    specimen = SPECIMENS[name]()
    prepare(specimen.model)
    with watched() as seen:
        seen.submit(lambda number: TraceGradient(number, path))
        loop(specimen.model, specimen.batch, specimen.loss, steps)
    return seen


def shown(seen: Watched, path: str) -> str:
    tree = seen.state.tree
    row = next(~index for index, info in enumerate(tree.parameters) if info.path == path)
    lines = detail_lines(explain(seen.state, row), 500)
    return "\n".join(line_text(line).rstrip() for line in lines)


def frozen_under_momentum(model: nn.Module, batch: loops.Batch, loss: loops.Loss, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=False)
        loss(model(*batch(step))).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step == 1:
            model.get_parameter("fc2.weight").requires_grad_(False)


def only_the_last_layer(model: nn.Module, batch: loops.Batch, loss: loops.Loss, steps: int) -> None:
    optimizer = torch.optim.SGD(model.get_submodule("fc2").parameters(), lr=0.1)
    for step in range(steps):
        loss(model(*batch(step))).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def times_nan(model: nn.Module, batch: loops.Batch, loss: loops.Loss, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        (loss(model(*batch(step))) * math.nan).backward()
        optimizer.step()


def double(model: CoOp, step: int) -> None:
    if step == 1:
        with torch.no_grad():
            model.text_encoder.get_parameter("0.qkv.weight").mul_(2)


Case = tuple[str, Callable[[], Watched], str, str]

ZOO: list[Case] = [
    ("T", lambda: zoo("mlp", "fc1.weight"), "fc1.weight", "the only way"),
    ("Z", lambda: zoo("lora", "0.lora_a", 1), "0.lora_a", "all exactly zero"),
    ("U", lambda: zoo("unused_branch", "unused.fc1.weight"), "unused.fc1.weight", "forward did not call its module"),
    ("U", lambda: zoo("under_no_grad", "backbone.fc1.weight"), "backbone.fc1.weight", "it runs under no_grad"),
    ("F", lambda: zoo("frozen_encoder_with_prompt", "text_encoder.0.qkv.weight"), "text_encoder.0.qkv.weight",
     "on its way to prompt"),
    ("C", lambda: zoo("frozen_prefix", "backbone.fc1.weight"), "backbone.fc1.weight",
     "nothing in it or before it needs a gradient"),
    ("O", lambda: zoo("mlp", "fc1.weight", loop=only_the_last_layer), "fc1.weight", "In no optimizer, so no step moves it"),
    ("M", lambda: zoo("mlp", "fc2.weight", 4, frozen_under_momentum), "fc2.weight", "yet its values changed"),
    ("N", lambda: zoo("mlp", "fc1.weight", loop=times_nan), "fc1.weight", "128 elements are NaN or infinite"),
    ("S", lambda: zoo("mlp", "fc1.weight", 2, loops.grad_scaler), "fc1.weight", "The loss scaler has skipped 1 step"),
]  # fmt: skip

INF = torch.amp.GradScaler
COOP: list[Case] = [
    # Eight ways through each of four blocks, and two through the normalization: x, and the norm of x.
    ("T", lambda: coop("ctx"), "ctx", f"4 of them frozen, the shortest of {2 * 8**4:,} ways"),
    ("Z", lambda: coop("ctx", 0.0), "ctx", "all exactly zero"),
    ("U", lambda: coop("spare.weight"), "spare.weight", "forward did not call its module"),
    ("U", lambda: coop("adapter.weight"), "adapter.weight", "its output is detached from the loss, or not used in it"),
    ("F", lambda: coop("text_encoder.2.qkv.weight"), "text_encoder.2.qkv.weight", "on its way to ctx"),
    ("C", lambda: coop("image_encoder.0.weight"), "image_encoder.0.weight", "nothing in it or before it needs a gradient"),
    ("O", lambda: coop("logit_scale"), "logit_scale", "In no optimizer, so no step moves it"),
    ("M", lambda: coop("text_encoder.0.qkv.weight", within=double), "text_encoder.0.qkv.weight", "yet its values changed"),
    ("N", lambda: coop("ctx", math.nan), "ctx", "64 elements are NaN or infinite"),
    ("S", lambda: coop("ctx", math.inf, scaler=INF("cpu", init_scale=4.0)), "ctx", "The loss scaler has skipped 1 step"),
]  # fmt: skip


def test_every_state_is_in_both_tables() -> None:
    every = {state.value for state in ParameterState} - {ParameterState.UNKNOWN.value}
    assert {case[0] for case in ZOO} == {case[0] for case in COOP} == every


@pytest.mark.parametrize(
    ("letter", "train", "path", "reason"), [*ZOO, *COOP],
    ids=[f"zoo-{case[0]}-{case[2]}" for case in ZOO] + [f"coop-{case[0]}-{case[2]}" for case in COOP],
)  # fmt: skip
def test_states_are_reached_and_described(letter: str, train: Callable[[], Watched], path: str, reason: str) -> None:
    seen = train()
    assert seen.letters()[path] == letter
    words, state = shown(seen, path), ParameterState(letter)
    assert f"{letter} {STATE_NAMES[state]}" in words
    assert MEANINGS[state] in words
    assert reason in words


def test_module_that_one_step_did_not_call() -> None:
    model = nn.ModuleList(nn.Linear(3, 1) for _ in range(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watched() as seen:
        for step in range(3):
            optimizer.zero_grad()
            model[step % 2](torch.ones(2, 3)).square().mean().backward()
            optimizer.step()
    tree = seen.state.tree
    paths = {parameter.path: index for index, parameter in enumerate(tree.parameters)}
    reasons = [state_reason(tree, paths[path]) for path in ("1.weight", "2.weight")]
    assert reasons == ["forward did not call its module in step 3", "forward did not call its module"]


def test_model_with_later_gradient_has_trained() -> None:
    encoder, heads = nn.Linear(3, 3), [nn.Linear(3, 1), nn.Linear(3, 1)]
    optimizer = torch.optim.SGD([*encoder.parameters(), *heads[0].parameters(), *heads[1].parameters()], lr=0.01)
    with watched() as seen:
        for step in range(3):
            optimizer.zero_grad()
            heads[step % 2](encoder(torch.ones(2, 3))).square().mean().backward()
            optimizer.step()
    state = seen.state
    before = model_records(state)
    without = [each.has_trained for each in before].index(False)
    # The norms of step 4, which is not sampled.
    state.tree.norms, state.tree.norms_step, state.tree.norm_steps = (0.5,) * 6, 4, None
    record = model_records(state)[without]
    assert record.has_trained
    assert record_text(record).startswith("4 trainable not run in step 3, ")
