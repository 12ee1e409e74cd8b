"""What is said of the losses, norms and steps of several optimizers."""

from __future__ import annotations

import pytest
from helpers.fakes import Node
from helpers.optimizer_runs import (
    gan,
    linear,
    loss_at,
    models,
    norm_at,
    of_loss,
    of_norm,
    owner,
    per_parameter,
    run_of,
    sac,
    stages,
    steps,
    texts_of,
)
from helpers.states import state_after
from helpers.summaries import report_of

from gradtui.run.state.optimizers.optimizer_turns import OptimizerTurns, optimizer_turns
from gradtui.run.text.report import progress_line
from gradtui.run.text.units import number_text


@pytest.mark.parametrize("layers", [1, 20])
def test_optimizers_of_single_parameters_are_counted(layers: int) -> None:
    state = state_after(*per_parameter(layers))
    assert optimizer_turns(state) == OptimizerTurns(parts=2 * layers)
    count, (loss,), (norm,) = 2 * layers, texts_of(state, "loss"), texts_of(state, "norm")
    # The first optimizer steps once in each iteration, and the loss of all of them is the same.
    last = 4 * count + 1
    first_loss, last_loss = (number_text(loss_at(0, iteration)).strip() for iteration in (1, 5))
    assert loss == f"{first_loss} (step 1) → {last_loss} (step {last})"
    assert norm == f"{of_norm(0, 1, last)}, of the parameters of one of {count} optimizers"
    assert texts_of(state, "steps")[0].startswith(f"{5 * count} steps (of {count} optimizers of one model)")


def test_different_optimizers_share_no_row() -> None:
    state = state_after(*sac(40))
    assert texts_of(state, "loss") == [
        f"qf1 + qf2 {of_loss(0, 1, 38)}",
        f"actor {of_loss(1, 3, 39)}",
        f"1 tensor {of_loss(2, 4, 40)}",
    ]
    assert texts_of(state, "norm") == [
        f"qf1 + qf2 {of_norm(0, 1, 38)}",
        f"actor {of_norm(1, 3, 39)}",
        f"1 tensor {of_norm(2, 4, 40)}",
    ]
    assert texts_of(state, "steps")[0].startswith("40 steps (qf1 + qf2 20, actor 10, 1 tensor 10), 40 micro-steps")


def test_rows_of_stages_begin_with_the_last_stage() -> None:
    state = state_after(*stages(20))
    assert (state.main_optimizer, state.main_since) == (1, 21)
    assert texts_of(state, "loss") == [of_loss(1, 21, 40)]
    assert texts_of(state, "norm") == [of_norm(1, 21, 40)]


def test_how_loss_combines_several_backwards_is_said_once() -> None:
    both = texts_of(state_after(*gan(8, of=("mean", "mean"))), "loss")
    assert [text.endswith(", each the mean of a step's micro-steps") for text in both] == [True, False]
    one = texts_of(state_after(*gan(8, of=("", "sum"))), "loss")
    assert [text.endswith(", each the sum of a step's micro-steps") for text in one] == [True, False]
    other = texts_of(state_after(*gan(8, of=("sum", ""))), "loss")
    assert [text.endswith(", each the sum of a step's micro-steps") for text in other] == [False, True]
    listed = models(Node("Net", "Net", (), (linear("l1"),)))
    alone = run_of(listed, [owner(listed, "Net")], steps([0] * 9, 1, of=("mean",)))
    assert texts_of(state_after(*alone), "loss") == [f"{of_loss(0, 1, 9)}, each the mean of a step's micro-steps"]


def test_line_of_progress_names_optimizer_of_each_value() -> None:
    line = progress_line(state_after(*gan(40)))
    d, g = loss_at(1, 39), loss_at(0, 40)
    assert f"loss Discriminator {d:.4g} (step 39), Generator {g:.4g}  " in line
    assert f"gradient norm Discriminator {norm_at(1, 39):.3g} (step 39), Generator {norm_at(0, 40):.3g}  " in line


def test_the_report_says_whose_norms_it_describes() -> None:
    lines = report_of(state_after(*gan(40)))
    assert lines[0].startswith("40 steps (Discriminator 20, Generator 20)")
    (main,) = (line for line in lines if line.startswith("gradient norm ") and "read at" in line)
    assert main.endswith("read at 20 of 20 steps of Discriminator")
    assert f"gradient norm of Generator {of_norm(0, 2, 40)}" in lines


def test_the_report_on_stages_says_since_when() -> None:
    (line,) = (line for line in report_of(state_after(*stages(20))) if line.startswith("gradient norm "))
    assert line.endswith("read at 20 of 20 steps since another optimizer began at step 21")


def test_norms_of_parts_are_lower_bounds() -> None:
    alone, several = state_after(*stages(20)[:43]), state_after(*gan(40))
    for state in (alone, several):
        whole = (progress_line(state), *texts_of(state, "norm"), *report_of(state))
        assert not any("≥" in line or "of the parts" in line for line in whole if "norm" in line)
        state.tree.is_sharded = True
        assert all(text.endswith(", of the parts that this rank has") for text in texts_of(state, "norm"))
        norms = [line for line in report_of(state) if line.startswith("gradient norm ")]
        assert all("of the parts that this rank has" in line for line in norms)
    assert f"gradient norm ≥ {norm_at(0, 20):.3g}  " in progress_line(alone)
    d, g = norm_at(1, 39), norm_at(0, 40)
    assert f"gradient norm Discriminator ≥ {d:.3g} (step 39), Generator ≥ {g:.3g}  " in progress_line(several)
