"""Where backward runs in the module tree and where it stops, on the usual ways of freezing a part of a model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.training import square_step
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradtui.protocol.events import GradientFlowMeasured
from gradtui.run.state.backward.frontier import Frontier, frontier
from gradtui.run.state.run_state import RunState
from gradtui.run.text.frontier import frontier_sentence

WIDTH = 8


def block() -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU())


class Backbone(nn.Module):
    """An embedding, four blocks, and a head."""

    def __init__(self, frozen: tuple[str, ...] = (), no_grad: bool = False, detached: bool = False) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.Sequential(*(block() for _ in range(4)))
        self.head = nn.Linear(WIDTH, 2)
        self.no_grad, self.detached = no_grad, detached
        for path in frozen:
            self.get_submodule(path).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.no_grad):
            x = self.blocks(self.embed(x))
        return self.head(x.detach() if self.detached else x)


class Adapted(nn.Module):
    """LoRA: a frozen layer with a trained one of low rank beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.lora_B(self.lora_A(x))


class Prompted(nn.Module):
    """A prompt that is added to what a frozen embedding makes, in front of a frozen encoder with attention."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = nn.Parameter(torch.zeros(4, WIDTH))
        self.embed = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.encoder = nn.Sequential(block(), nn.Linear(WIDTH, WIDTH)).requires_grad_(False)
        self.attention = nn.MultiheadAttention(WIDTH, 2).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.encoder(self.embed(x) + self.prompt)
        return self.attention(x, x, x)[0]


def trained(model: nn.Module, steps: int = 2) -> Watched:
    torch.manual_seed(0)
    with watched() as seen:
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        for _ in range(steps):
            square_step(model, optimizer, torch.ones(4, WIDTH))
    return seen


def line_of(state: RunState) -> tuple[list[str], list[str]]:
    """Paths where backward stops, and of what it never enters."""
    tree = state.tree
    line = frontier(tree)
    stops = [tree.modules[i].path for i in line.stops] + [tree.parameters[i].path for i in line.stop_parameters]
    return stops, [tree.modules[i].path for i in line.never_entered]


def reach_of(seen: Watched, path: str) -> str:
    tree = seen.state.tree
    return next(letter for module, letter in zip(tree.modules, tree.gradient_flow.reach) if module.path == path)


Case = tuple[Callable[[], nn.Module], list[str], list[str]]
CASES: dict[str, Case] = {
    "everything trains": (Backbone, [], []),
    "only the last blocks train": (
        lambda: Backbone(("embed", "blocks.0", "blocks.1")), ["blocks.2"], ["embed", "blocks.0", "blocks.1"],
    ),
    "only the head trains": (lambda: Backbone(("embed", "blocks")), ["head"], ["embed", "blocks"]),
    "a frozen layer in the middle": (lambda: Backbone(("blocks.1",)), [], []),
    "a frozen first layer": (lambda: Backbone(("embed",)), ["blocks"], ["embed"]),
    "under no_grad": (lambda: Backbone(no_grad=True), ["head"], ["embed", "blocks"]),
    "frozen and under no_grad": (lambda: Backbone(("embed", "blocks"), no_grad=True), ["head"], ["embed", "blocks"]),
    "detached": (lambda: Backbone(detached=True), ["head"], ["embed", "blocks"]),
    "LoRA": (
        lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH).requires_grad_(False), Adapted(), Adapted()),
        ["1.lora_A"], ["0", "1.base"],
    ),
    "a prompt": (Prompted, ["prompt"], ["embed"]),
    "nothing to freeze in front": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, 2)), [], []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_where_backward_stops(name: str) -> None:
    make, stops, never = CASES[name]
    assert line_of(trained(make()).state) == (stops, never)


def test_gradient_runs_through_frozen_modules_never_called() -> None:
    seen = trained(Prompted())
    assert reach_of(seen, "attention.out_proj") == "p"
    assert reach_of(seen, "encoder") == reach_of(seen, "encoder.0.2") == "p"
    assert reach_of(seen, "embed") == "-"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Backbone(("embed", "blocks")), "nothing before it needs a gradient"),
        (Backbone(no_grad=True), "what comes before it runs under no_grad"),
        (Backbone(detached=True), "detached from the loss, or not used in it"),
    ],
    ids=["frozen", "no_grad", "detached"],
)
def test_why_backward_stops_there(model: Backbone, words: str) -> None:
    said = frontier_sentence(trained(model).state.tree)
    assert said is not None
    assert "stops at head: " in said
    assert words in said


def test_no_grad_and_inference_mode_are_told_apart() -> None:
    for mode, letter in ((torch.no_grad, "n"), (torch.inference_mode, "i")):
        model = Backbone()
        with watched() as seen, mode():
            model(torch.ones(4, WIDTH))
        reach = seen.all(GradientFlowMeasured)[-1]
        assert (reach.reach, set(reach.grad_modes)) == ("", {letter})
        assert seen.state.tree.trainable == "1" * len(seen.state.tree.parameters)


def test_teacher_under_no_grad_is_never_entered() -> None:
    teacher, student = Backbone(), Backbone()
    with watched() as seen:
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for _ in range(3):
            x = torch.ones(4, WIDTH)
            with torch.no_grad():
                target = teacher(x)
            optimizer.zero_grad()
            (student(x) - target).square().mean().backward()
            optimizer.step()
    # The first of two models of one class, neither of which is a global variable.
    assert [model.name for model in seen.state.tree.models] == ["Backbone", "Backbone_2"]
    assert line_of(seen.state) == ([], ["Backbone"])
    assert "under no_grad" in str(frontier_sentence(seen.state.tree))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_modules_have_place_in_frontier(reentrant: bool) -> None:
    class Checkpointed(Backbone):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(checkpoint(self.blocks, self.embed(x), use_reentrant=reentrant))

    seen = trained(Checkpointed())
    assert frontier(seen.state.tree) == Frontier()
    assert reach_of(seen, "blocks.1.1") == "p"
    assert "n" not in seen.state.tree.gradient_flow.grad_modes


def test_features_from_before_step_lie_behind_frontier() -> None:
    model = Backbone()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            with torch.no_grad():
                features = model.blocks(model.embed(torch.ones(4, WIDTH)))
            square_step(model.head, optimizer, features)
    assert line_of(seen.state) == (["head"], ["embed", "blocks"])
    assert "under no_grad" in str(frontier_sentence(seen.state.tree))


def test_second_backward_adds_to_what_is_told() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    model = nn.ModuleList([first, second])
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            first(torch.ones(1, 2)).sum().backward()
            second(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert seen.state.tree.gradient_flow.reach == "eee"


def test_frozen_model_passes_gradient_of_attacked_input() -> None:
    """Backward does not end at parameters of a model that has none to train."""
    body, head = nn.Sequential(nn.Linear(WIDTH, WIDTH)).requires_grad_(False).eval(), nn.Linear(WIDTH, 1)
    with watched() as seen:
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        for _ in range(3):
            x = torch.ones(4, WIDTH, requires_grad=True)
            head(body(x)).square().mean().backward()
            optimizer.zero_grad()
            head(body(x.detach() + x.grad)).square().mean().backward()
            optimizer.step()
    tree = seen.state.tree
    assert tree.gradient_flow is not None
    assert [tree.gradient_flow.reach[model.root] for model in tree.models] == ["p", "p"]


def test_flags_tell_batch_norm_with_held_statistics() -> None:
    """Against the statistics themselves: Lightning freezes a BatchNorm by its `track_running_stats`."""
    model = nn.Sequential(
        *[nn.BatchNorm1d(WIDTH) for _ in range(3)], nn.InstanceNorm1d(WIDTH, track_running_stats=True)
    )
    model[1].eval()
    for norm in (model[2], model[3]):
        norm.track_running_stats = False
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(4, WIDTH, 3)).sum().backward()
        optimizer.step()
    tree = seen.state.tree
    assert tree.gradient_flow.training == "110h1"
    moved = [bool((norm.running_mean != 0).any()) for norm in model]
    assert moved == [flag == "1" for flag in tree.gradient_flow.training[1:]]
