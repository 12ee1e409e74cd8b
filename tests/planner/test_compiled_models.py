"""Models that `torch.compile` compiles: what the state knows of them, what is offered, and what is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from helpers.lines import line_text
from helpers.training import square_step
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch._functorch import config

from gradtui.protocol.commands import SetCheckpointing, TraceStep
from gradtui.protocol.events import CommandRejected, OperationsRecorded
from gradtui.run.state.forecasts.plans import figures, levels_to_checkpoint, plans
from gradtui.run.text import compiled_budget, refusals, why_by_rules
from gradtui.tui.explanations.plan_lines import heading_lines

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

Step = Callable[[Tensor], Tensor]


class Stack(nn.Module):
    """Three blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3))
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


def wrapped(model: Stack) -> Step:
    return torch.compile(model, backend="aot_eager")


def in_place(model: Stack) -> Step:
    model.compile(backend="eager")
    return model


def in_function(model: Stack) -> Step:
    return torch.compile(lambda x: model(x) * 2, backend="aot_eager")


def two_blocks(model: Stack) -> Step:
    model.blocks[0].compile(backend="eager")
    model.blocks[1] = torch.compile(model.blocks[1], backend="eager")  # type: ignore[assignment]
    return model


def loss_alone(model: Stack) -> Step:
    scaled = torch.compile(lambda x: x * 2, backend="eager")
    return lambda x: scaled(model(x))


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def trained(style: Callable[[Stack], Step], since: int = 0, kind: type[Stack] = Stack) -> Watched:
    """Train five steps, compiled from the one after `since` on."""
    model = kind()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    step: Step = model
    with watched() as seen:
        for number in range(5):
            if number == since:
                step = style(model)
            if number == 3:
                seen.commands.submit(lambda id_: TraceStep(id_))
            square_step(step, optimizer, torch.ones(4, 8))
    return seen


@pytest.mark.parametrize(
    ("style", "compiled", "free"),
    [
        (wrapped, {""}, set()),
        (in_place, {""}, set()),
        (in_function, {""}, set()),
        (two_blocks, {"blocks.0", "blocks.1"}, {"blocks.2"}),
        (loss_alone, set(), {"blocks.0", "blocks.1", "blocks.2"}),
    ],
)
def test_compiled_models_are_known_and_get_no_checkpoints(
    style: Callable[[Stack], Step], compiled: set[str], free: set[str]
) -> None:
    state = trained(style).state
    tree = state.tree
    assert {tree.modules[index].path for index in tree.compiled} == compiled
    assert state.has_compiled_code
    assert {tree.modules[index].path for index in next(levels_to_checkpoint(state))} == free
    offered = plans(state)
    assert {tree.modules[index].path for plan in offered for index in plan.change.checkpoints} == free
    assert any(plan.name == "head" for plan in offered)
    partly = [plan.name for plan in offered if "uncompiled" in plan.name]
    assert partly == (["as now, every uncompiled block checkpointed"] if style is two_blocks else [])
    shown = " ".join(line_text(line) for line in heading_lines(state, figures(state, offered), 400))
    assert ("activation_memory_budget" in shown) == bool(compiled)
    assert "the script uses torch.compile" in shown


class LastCompiled(Stack):
    """Calls its last block in a compiled function."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.compile(lambda x: self.blocks[2](x), backend="aot_eager")

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.last(self.blocks[1](self.blocks[0](x))))  # type: ignore[no-any-return]


def test_a_block_in_a_compiled_function_is_compiled() -> None:
    state = trained(lambda model: model, kind=LastCompiled).state
    assert {state.tree.modules[index].path for index in state.tree.compiled} == {"blocks.2"}
    assert {state.tree.modules[index].path for index in next(levels_to_checkpoint(state))} == {"blocks.0", "blocks.1"}


def test_no_step_is_recorded_in_compiled_code() -> None:
    # Dynamo skips the forward of modules of torch.nn that it meets first, and its callback stays in force within them.
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), nn.Linear(8, 2))
    model[0].compile(backend="eager")
    with watched() as seen:
        for _ in seen.steps(4, {2: lambda id_: TraceStep(id_)}):
            model(torch.ones(3, 4, 8)).sum().backward()
            for parameter in model.parameters():
                parameter.grad = None
    assert seen.all(OperationsRecorded) == []
    assert seen.refusals() == [refusals.PROFILE_RECOMPILES]


def test_records_from_before_compilation_no_longer_count() -> None:
    seen = trained(in_place, since=4)
    assert [each.missing for each in seen.all(OperationsRecorded)] != []
    assert seen.state.operations is None
    assert [seen.state.tree.modules[index].path for index in seen.state.tree.compiled] == [""]


def test_uncompiled_model_says_nothing_of_compilation() -> None:
    state = trained(lambda model: model).state
    assert (state.tree.compiled, state.has_compiled_code, compiled_budget(state)) == (frozenset(), False, "")
    assert len(next(levels_to_checkpoint(state))) == 3


def test_step_that_could_not_be_recorded_says_why() -> None:
    state = trained(lambda model: model).state
    state.operations = None
    assert why_by_rules(state) == "no step was recorded"
    state.refused.append(CommandRejected(1.0, 1, TraceStep(9), "the models are on cuda"))
    state.refused.append(CommandRejected(1.0, 1, SetCheckpointing(9, "a", True), "no"))
    assert why_by_rules(state) == "no step was recorded: the models are on cuda"


def test_what_torch_says_of_budget_that_is_recommended() -> None:
    """Less budget keeps fewer bytes: all of what the compiled region keeps by default with 1, its inputs with 0."""
    kept = {}
    before = config.activation_memory_budget
    assert before == 1.0
    for budget in (1.0, 0.5, 0.0):
        config.activation_memory_budget = budget
        try:
            torch._dynamo.reset()
            model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4)))
            given = torch.ones(64, 16)
            result = torch.compile(model, backend="aot_eager")(given)
            known = {each.untyped_storage().data_ptr() for each in (given, *model.parameters())}
            saved = {each.untyped_storage().data_ptr(): each.nbytes for each in result.grad_fn.saved_tensors}
            kept[budget] = sum(size for key, size in saved.items() if key not in known)
        finally:
            config.activation_memory_budget = before
    # Four results of tanh, of 64 x 16 floats.
    assert kept[1.0] == 4 * 64 * 16 * 4
    assert kept[0.0] == 0
    assert 0 < kept[0.5] <= kept[1.0] // 2
