"""Why a parameter is in its state, where the probe can see the cause: on training that has that cause and no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.training import square_steps
from helpers.watched import Watched, watched
from torch import nn

from gradtui.protocol.vocabulary import StateReason
from gradtui.run.text.explanation.states import CAUSES
from gradtui.run.text.problem_states import problem_lines
from gradtui.tui.explanations.explanations import explain
from gradtui.tui.rendering.lines import detail_lines

X = torch.linspace(-1, 1, 24).view(6, 4)
Clear = Callable[[torch.optim.Optimizer], object]


def zeros(optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad(set_to_none=False)


def gradients_add_up(_: torch.optim.Optimizer) -> None:
    """Gradients add up."""


def none(optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()


def frozen_midway(clear: Clear, write: float = 1.0, through_data: bool = False, **settings: float) -> Watched:
    """Six steps of SGD; before the fourth the script freezes the first layer. After each it scales it by `write`."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **settings)  # type: ignore[arg-type]
        for step in range(6):
            model[0].requires_grad_(step < 3)
            clear(optimizer)
            model(X).square().mean().backward()
            optimizer.step()
            with torch.no_grad():
                for tensor in model[0].parameters() if write != 1 else ():
                    (tensor.data if through_data else tensor).mul_(write)
    return seen


def causes(seen: Watched, prefix: str = "0.") -> set[tuple[str, str]]:
    """(state, cause) of the parameters of one layer."""
    tree = seen.state.tree
    rows = zip(tree.parameters, tree.states, tree.reasons)
    return {(letter, reason) for info, letter, reason in rows if info.path.startswith(prefix)}


@pytest.mark.parametrize(
    ("train", "cause"),
    [
        (lambda: frozen_midway(zeros, momentum=0.9), StateReason.ZERO_GRADIENT),
        (lambda: frozen_midway(zeros, weight_decay=0.1), StateReason.DECAY),
        (lambda: frozen_midway(gradients_add_up), StateReason.STALE_GRADIENT),
        (lambda: frozen_midway(none, write=0.5), StateReason.OUTSIDE_STEP),
        (lambda: frozen_midway(none, write=0.5, through_data=True), StateReason.OUTSIDE_STEP),
    ],
    ids=["momentum", "weight decay", "stale gradient", "write", "write through .data"],
)
def test_what_moves_a_frozen_parameter_is_named(train: Callable[[], Watched], cause: StateReason) -> None:
    seen = train()
    assert causes(seen) == {("M", cause.value)}
    assert causes(seen, "1.") == {("T", StateReason.NONE.value)}
    said = [entry.text for entry in seen.state.log if entry.kind == "moved"]
    assert any(CAUSES[cause] in text for text in said)
    row = next(index for index, info in enumerate(seen.state.tree.parameters) if info.path == "0.weight")
    detail = "".join(text for line in detail_lines(explain(seen.state, ~row), 1000) for text, _ in line)
    assert CAUSES[cause][1:] in detail


def test_what_holds_still_has_no_cause() -> None:
    assert causes(frozen_midway(zeros)) == {("C", StateReason.NONE.value)}
    assert causes(frozen_midway(none, momentum=0.9, weight_decay=0.1)) == {("C", StateReason.NONE.value)}


@pytest.mark.parametrize("gives_zeros", [False, True])
def test_optimizer_moving_without_gradient_is_named(gives_zeros: bool) -> None:
    class Shrinking(torch.optim.SGD):
        def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
            with torch.no_grad():
                for group in self.param_groups:
                    for tensor in group["params"]:
                        tensor.mul_(0.9)
                        if gives_zeros and tensor.grad is None:  # as Muon does
                            tensor.grad = torch.zeros_like(tensor)
            return super().step(closure)

    model = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 2))
    with watched() as seen:
        optimizer = Shrinking(model.parameters(), lr=0.1)
        square_steps(model, optimizer, X, 3)
    assert causes(seen) == {("M", StateReason.NO_GRADIENT.value)}


def test_cleared_gradient_is_told_from_missing() -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 2), "spare": nn.Linear(4, 2)})
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model["used"](X).square().mean().backward()
            optimizer.zero_grad()
            optimizer.step()
    assert causes(seen, "used") | causes(seen, "ModuleDict.used") == {("U", StateReason.CLEARED.value)}
    assert seen.state.tree.gradient_flow is not None


def test_report_names_parameters_by_state_and_cause() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
    with watched() as seen:
        optimizer = torch.optim.SGD(model[:2].parameters(), lr=0.1)
        for _ in range(2):
            model(X).square().mean().backward()
            optimizer.zero_grad()
            optimizer.step()
    cleared = CAUSES[StateReason.CLEARED]
    assert problem_lines(seen.state.tree) == [
        f"unreached: 0.weight, 0.bias, 1.weight and 1 more ({cleared})",
        "no optimizer: 2.weight, 2.bias (only the script itself can move it)",
    ]
