"""What a freeze or an unfreeze would change: by arithmetic on scripted runs, and against torch's own numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from helpers.fakes import Node, found
from helpers.scripted_runs import linear, run
from helpers.training import square_step
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.freezes import Changed
from gradtui.protocol.vocabulary import GroupSettings, OptimizerInfo, Setting
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.forecast import forecast, forecast_train_only
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import optimizers_of

A, B = (0, 1), (2, 3)
"""The parameters of the modules `a` and `b`: 16 + 4 elements of four bytes each."""
BYTES = 80


def with_optimizer(state: RunState, type_name: str, *settings: tuple[str, Setting]) -> RunState:
    owned = state.optimizers[0]
    apply(state, ev.OptimizersFound(0.1, 0, (replace(owned, type_name=type_name),)))
    apply(state, ev.GroupsRead(0.1, 1, ((GroupSettings(0.01, 0.0, settings),),)))
    return state


@pytest.mark.parametrize(
    ("type_name", "settings", "tensors", "scalars"),
    [
        ("SGD", (), 0, 0),
        ("SGD", (("momentum", 0.9),), 1, 0),
        ("AdamW", (), 2, 1),
        ("Adam", (("amsgrad", True),), 3, 1),
        ("RMSprop", (("centered", True), ("momentum", 0.9)), 3, 1),
    ],
)
def test_a_freeze_frees_gradients_and_keeps_optimizer_state(
    type_name: str, settings: tuple[tuple[str, Setting], ...], tensors: int, scalars: int
) -> None:
    made = forecast(with_optimizer(run(), type_name, *settings), A, False)
    assert (made.stops, made.starts, made.elements) == (A, (), 20)
    assert made.gradients == -BYTES
    assert made.kept_state == tensors * BYTES + scalars * 4 * len(A)
    assert (made.new_state, made.owners, made.joining, made.would_fail) == (0, (type_name,), 0, False)


def test_optimizer_without_known_rule_makes_its_state_unknown() -> None:
    assert forecast(with_optimizer(run(), "Lion"), A, False).kept_state is None


def test_only_what_changes_counts() -> None:
    made = forecast(run("TTFF", "1100"), range(4), False)
    assert (made.stops, made.gradients) == (A, -BYTES)
    assert forecast(run("TTFF", "1100"), A, True).starts == ()


def test_an_unreached_parameter_has_no_gradient_to_free() -> None:
    made = forecast(run("TUTT"), A, False)
    assert made.gradients == -64


def test_unfreeze_adds_state_and_joins_orphans() -> None:
    state = run("CCTT", "0011", owned=B)
    made = forecast(state, A, True)
    assert (made.starts, made.gradients, made.new_state) == (A, BYTES, BYTES)
    assert (made.joining, made.joins, made.owners) == (2, "SGD", ())
    assert made.activations is None
    assert not made.would_fail


def test_formerly_trained_has_state_unless_dropped() -> None:
    state = run("TTTT", "1111")
    apply(state, ev.ParametersClassified(2.0, 21, "CCTT", "0011"))
    assert forecast(state, A, True).new_state == 0
    dropping = SetTrainable(1, "a", False, state="drop")
    apply(state, ev.CommandApplied(2.0, 21, dropping, "froze a", A, (Changed(False, ("a.weight", "a.bias")),)))
    assert forecast(state, A, True).new_state == BYTES


def test_trained_in_gone_optimizer_has_no_state() -> None:
    state = run("TTTT", "1111")
    apply(state, ev.ParametersClassified(2.0, 21, "CCTT", "0011"))
    other = replace(state.optimizers[0], parameters=B, group_of=(0, 0))
    apply(state, ev.OptimizersFound(2.0, 21, (other,)))
    assert forecast(state, A, True).new_state == BYTES
    freeze = ev.CommandApplied(
        2.0, 21, SetTrainable(1, "a", False), "froze a", A, (Changed(False, ("a.weight", "a.bias")),)
    )
    apply(state, freeze)
    assert forecast(state, A, True).new_state == 0


def test_under_no_grad_unfrozen_parameter_gets_no_gradient() -> None:
    made = forecast(run("CCTT", "0011", grad_modes="gng"), A, True)
    assert (made.gradients, made.without_gradient) == (0, 2)


def test_freeze_of_all_that_backward_reaches_would_fail() -> None:
    assert forecast(run("TTUU"), A, False).would_fail
    assert not forecast(run("TTUU"), B, False).would_fail
    assert forecast(run("TTTT", owned=A), A, False).would_fail, "what no optimizer owns does not count"
    assert not forecast_train_only(run("TTFF", "1100"), B).would_fail


def test_train_only_counts_both_ways() -> None:
    made = forecast_train_only(run("TTFF", "1100"), (1, 2))
    assert (made.stops, made.starts) == ((0,), (2,))
    assert made.gradients == 64 - 64
    assert made.elements == 32


def test_sharded_parameters_count_the_part_of_this_process() -> None:
    state = run()
    infos = state.tree.parameters
    state.tree.parameters = (replace(infos[0], local_count=4), *infos[1:])
    assert forecast(state, (0,), False).gradients == -16


def saving(upstream: tuple[int, ...], *, last: str = "Linear", states: str = "TTTT") -> RunState:
    """`a`, which keeps 100 bytes, runs before `b`, which keeps 30."""
    second = Node("b", last, (("weight", (4, 4)), ("bias", (4,))))
    model = found(Node("Net", "Net", (), (linear("a"), second)))
    state = run(states, "".join("1" if letter == "T" else "0" for letter in states), model=model)
    apply(state, ev.SavedBytesMeasured(1.0, 4, (0, 100, 30), 130, upstream))
    return state


def test_linear_layer_keeps_input_for_weight() -> None:
    assert forecast(saving((-1, -1, 0)), B, False).activations == -30
    assert forecast(saving((-1, -1, 0)), (3,), False).activations == 0


def test_norm_keeps_its_input_while_gradient_passes() -> None:
    assert forecast(saving((-1, -1, 0), last="LayerNorm"), B, False).activations == 0


def test_what_unknown_module_keeps_in_parts_is_unknown() -> None:
    assert forecast(saving((-1, -1, 0), last="Attention"), B, False).activations is None


def test_freeze_frees_kept_for_frozen_elsewhere() -> None:
    state = saving((-1, -1, 0), last="Attention", states="TTFF")
    assert forecast(state, A, False, most_modules=0).activations is None
    assert forecast(state, A, False, most_modules=1) == forecast(state, A, False)
    made = forecast(state, A, False)
    assert (made.activations, made.at_least) == (-130, False)


def test_before_a_step_is_sampled_activations_are_unknown() -> None:
    assert forecast(run(samples=0), A, False).activations is None


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.act, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.as_tensor(self.down(self.act(self.up(self.norm(x)))))


def batches() -> Iterator[Tensor]:
    torch.manual_seed(0)
    for _ in range(3):
        yield torch.randn(8, 16)


def train(frozen: str | None, optimizer_type: type[torch.optim.Optimizer]) -> tuple[RunState, int, int]:
    """Train two blocks and return the state, and the bytes of `.grad` and of optimizer state of the last block."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block())
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(frozen is None or not name.startswith(frozen))
    with watched() as seen:
        optimizer = optimizer_type(model.parameters(), lr=1e-3)  # type: ignore[call-arg]
        for batch in batches():
            square_step(model, optimizer, batch)
        gradients = sum(p.grad.nbytes for p in model[1].parameters() if p.grad is not None)
        state = sum(
            value.nbytes
            for p in model[1].parameters()
            for value in optimizer.state[p].values()
            if isinstance(value, Tensor)
        )
    return seen.state, gradients, state


@pytest.mark.parametrize("optimizer_type", [torch.optim.Adam, torch.optim.NAdam, torch.optim.Adagrad])
def test_the_figures_are_those_of_torch(optimizer_type: type[torch.optim.Optimizer]) -> None:
    before, gradients, state = train(None, optimizer_type)
    after, no_gradients, _ = train("1.", optimizer_type)
    block = [index for index, info in enumerate(before.tree.parameters) if info.path.startswith("1.")]
    made = forecast(before, block, False)
    assert (made.gradients, made.kept_state) == (no_gradients - gradients, state)
    assert before.tree.saved is not None
    assert after.tree.saved is not None
    assert made.activations == after.tree.saved.total - before.tree.saved.total < 0
    assert optimizers_of(before, block[0]) == [0]
    again = forecast(after, block, True)
    assert (again.gradients, again.new_state) == (gradients, state)


def test_optimizers_that_are_gone_own_nothing() -> None:
    state = run()
    apply(state, ev.OptimizersFound(0.2, 0, (OptimizerInfo("Adam", 1, A, 0, (0, 0), freed=True),)))
    assert forecast(state, A, False).owners == ()
