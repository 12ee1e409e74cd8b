"""Different Parameter objects over the same memory: found, told of, and told of no longer when they are separate."""

from __future__ import annotations

import torch
from helpers.training import square_step
from helpers.watched import Watched, watched
from torch import Tensor, nn

from gradtui.probe.model.tree_builder import build
from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.text.frontier import frontier_sentence
from gradtui.run.text.models import same_storage_lines
from gradtui.run.text.problem_states import probe_cause
from gradtui.tui.explanations.explanations import explain
from gradtui.tui.rendering.lines import detail_lines

TOKENS = torch.tensor([0, 1, 2, 3, 4, 1])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embed(tokens))


def assigned() -> Tied:
    """One Parameter under two names comes back as two Parameters over one storage."""
    torch.manual_seed(0)
    model = Tied()
    model.load_state_dict(Tied().state_dict(), assign=True)
    return model


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    square_step(model, optimizer, TOKENS)


def shared(seen: Watched) -> dict[str, tuple[str, ...]]:
    return {info.path: info.same_storage for info in seen.state.tree.parameters}


def test_two_parameters_over_one_storage_are_named() -> None:
    model = assigned()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before = model.embed.weight.detach().clone()
        step(model, optimizer)
    # What is said: both gradients are subtracted from the one memory.
    both = before - 0.1 * (model.embed.weight.grad + model.head.weight.grad)
    torch.testing.assert_close(model.embed.weight.detach(), both)
    assert shared(seen) == {"embed.weight": ("head.weight",), "head.weight": ("embed.weight",)}
    (line,) = same_storage_lines(seen.state.tree, seen.state.optimizers)
    assert line.startswith("embed.weight, head.weight are 2 Parameter objects over the same memory: ")
    assert "an optimizer step updates it 2 times" in line
    assert line in "".join(text for facts in detail_lines(explain(seen.state, ~0), 1000) for text, _ in facts)


def test_where_only_one_trains_memory_is_updated_once() -> None:
    model = assigned()
    model.embed.requires_grad_(False)
    with watched() as seen:
        optimizer = torch.optim.SGD([model.head.weight], lr=0.1)
        for _ in range(3):
            step(model, optimizer)
    (line,) = same_storage_lines(seen.state.tree, seen.state.optimizers)
    assert "what changes one changes the others" in line
    # It moves with the other one: no write of the script's is the cause.
    assert (seen.letters()["embed.weight"], probe_cause(seen.state.tree.reasons, 0)) == ("M", None)


def test_tied_parameter_is_no_shared_storage() -> None:
    model = Tied()
    with watched() as seen:
        step(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert shared(seen) == {"embed.weight": ()}
    assert same_storage_lines(seen.state.tree, seen.state.optimizers) == []


def test_parts_of_one_storage_are_not_same_memory() -> None:
    flat = torch.zeros(12)
    model = nn.ParameterList([nn.Parameter(flat[:6]), nn.Parameter(flat[6:]), nn.Parameter(flat[6:].view(2, 3))])
    model.append(nn.Parameter(torch.empty(0)))
    model.append(nn.Parameter(torch.empty(0)))
    assert [info.same_storage for info in build([("model", model)]).parameters] == [(), ("2",), ("1",), (), ()]


def test_separated_storage_is_not_mentioned() -> None:
    model = assigned()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        assert same_storage_lines(seen.state.tree, seen.state.optimizers)
        model.head.weight.data = model.head.weight.data.clone()
        step(model, optimizer)
        step(model, optimizer)
    assert shared(seen) == {"embed.weight": (), "head.weight": ()}


def sharing(source: nn.Module) -> nn.Sequential:
    """A frozen model over the memory of another one."""
    follower = mlp()
    for own, given in zip(follower.parameters(), source.parameters()):
        own.data = given.data
        own.requires_grad_(False)
    return follower


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def reach_of(seen: Watched) -> list[str]:
    """The reach of each model, in the order of their first calls."""
    tree = seen.state.tree
    assert tree.gradient_flow is not None
    return [tree.gradient_flow.reach[model.root] for model in tree.models]


def distil(teacher: nn.Module, student: nn.Module) -> Watched:
    with watched() as seen:
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for _ in range(3):
            x = torch.randn(8, 4)
            with torch.no_grad():
                wanted = teacher(x + 0.1)
            optimizer.zero_grad()
            (student(x) - wanted).square().mean().backward()
            optimizer.step()
    return seen


def test_teacher_over_student_memory_has_own_facts() -> None:
    torch.manual_seed(0)
    student = mlp()
    teacher = sharing(student)
    seen = distil(teacher, student)
    assert reach_of(seen) == ["-", "e"]
    tree = seen.state.tree
    assert "under no_grad" in str(frontier_sentence(tree, 0))
    lines = same_storage_lines(tree, seen.state.optimizers)
    assert len(lines) == 4
    assert all("clone the values" in line for line in lines)


def test_gradient_passes_frozen_model_that_ran() -> None:
    torch.manual_seed(0)
    first = mlp().requires_grad_(False)
    second, prompt = sharing(first), nn.Parameter(torch.zeros(4))
    with watched() as seen:
        optimizer = torch.optim.SGD([prompt], lr=0.1)
        for used, other, reach in ((first, second, ["-", "p"]), (second, first, ["p", "-"])):
            for _ in range(2):
                with torch.no_grad():
                    wanted = other(torch.randn(8, 4))
                optimizer.zero_grad()
                (used(torch.randn(8, 4) + prompt) - wanted).square().mean().backward()
                optimizer.step()
            assert reach_of(seen) == reach


def laid_into(flat: torch.Tensor, *models: nn.Module) -> None:
    """Make all parameters parts of one storage, as flattened optimizers do."""
    at = 0
    for parameter in (each for model in models for each in model.parameters()):
        part = flat[at : at + parameter.numel()].view_as(parameter)
        at += parameter.numel()
        part.copy_(parameter.detach())
        parameter.data = part


def test_models_in_one_storage_have_own_facts() -> None:
    torch.manual_seed(0)
    student, teacher = mlp(), mlp().requires_grad_(False)
    laid_into(torch.zeros(200), student, teacher)
    seen = distil(teacher, student)
    tree = seen.state.tree
    assert reach_of(seen) == ["-", "e"]
    assert not any(info.same_storage for info in tree.parameters)
    assert tree.states == 4 * ParameterState.CUT.value + 4 * ParameterState.TRAINED.value, (
        "the teacher was called first"
    )


def test_only_used_parts_of_storage_pass() -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prompt, self.used, self.spare = nn.Parameter(torch.zeros(4)), first, second

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x + self.prompt, self.used.weight)

    model = Chosen()
    for each in (first, second):
        each.requires_grad_(False)
    laid_into(torch.zeros(40), first, second)
    with watched() as seen:
        optimizer = torch.optim.SGD([model.prompt], lr=0.1)
        for _ in range(3):
            square_step(model, optimizer, torch.randn(8, 4))
    tree = seen.state.tree
    states = {info.path.rpartition("model.")[2]: state for info, state in zip(tree.parameters, tree.states)}
    assert states == {
        "prompt": ParameterState.TRAINED.value,
        "used.weight": ParameterState.FLOW_THROUGH.value,
        "spare.weight": ParameterState.CUT.value,
    }
