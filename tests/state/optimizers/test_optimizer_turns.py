"""Which optimizers step in turns, which one is the main one, and what is said of each."""

from __future__ import annotations

from dataclasses import replace

from helpers.fakes import Node
from helpers.optimizer_runs import (
    course,
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
    two_of_one_model,
)
from helpers.states import state_after
from helpers.summaries import report_of

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import OptimizerInfo
from gradtui.records.export.gradients import gradient_norm
from gradtui.run.reducer import apply
from gradtui.run.state.optimizers.optimizer_turns import MAX_SHOWN, OptimizerTurns, optimizer_turns, stride_of
from gradtui.run.state.run_state import RunState


def test_the_optimizers_of_a_gan_step_in_turns() -> None:
    turns = optimizer_turns(state_after(*gan(40)))
    assert [(each.name, each.steps, each.has_own_loss) for each in turns.shown] == [
        ("Discriminator", 20, True),
        ("Generator", 20, True),
    ]
    assert (turns.omitted, turns.parts) == (0, 0)


def test_single_or_staged_training_has_no_turns() -> None:
    listed = models(Node("Net", "Net", (), (linear("l1"),)))
    alone = run_of(listed, [owner(listed, "Net")], steps([0] * 9, 1))
    assert optimizer_turns(state_after(*alone)) == OptimizerTurns()
    events = stages(20)
    # Also before the second stage has taken over.
    for count in range(len(events)):
        assert not optimizer_turns(state_after(*events[:count])).shown


def test_former_optimizer_is_left_out_after_takeover() -> None:
    listed = models(*(Node(name, name, (), (linear("l1"),)) for name in ("vae", "g", "d")))
    owners = [owner(listed, name) for name in ("vae", "g", "d")]
    state = state_after(*run_of(listed, owners, steps([0] * 30 + [1, 2] * 30, 3)))
    assert [each.name for each in optimizer_turns(state).shown] == ["g", "d"]
    assert (state.main_optimizer, state.main_since) == (1, 31)
    assert texts_of(state, "loss") == [f"g {of_loss(1, 31, 89)}", f"d {of_loss(2, 32, 90)}"]


def test_more_than_four_are_counted() -> None:
    names = [f"agent{index}" for index in range(6)]
    listed = models(*(Node(name, "Agent", (), (linear("l1"),)) for name in names))
    state = state_after(*run_of(listed, [owner(listed, name) for name in names], steps([*range(6)] * 4, 6)))
    turns = optimizer_turns(state)
    assert [each.name for each in turns.shown] == names[:MAX_SHOWN]
    assert turns.omitted == 2
    assert texts_of(state, "loss")[-1].endswith("; 2 more optimizers")
    assert texts_of(state, "steps")[0].startswith("24 steps (agent0 4,")


def test_optimizers_of_one_backward_share_loss() -> None:
    state = state_after(*two_of_one_model())
    assert [(each.name, each.has_own_loss) for each in optimizer_turns(state).shown] == [
        ("gpt (Muon)", True),
        ("gpt (AdamW)", False),
    ]
    assert texts_of(state, "loss") == [course(lambda step: loss_at(0, 1 + (step - 1) // 2), 1, 39)]
    assert texts_of(state, "norm") == [f"gpt (Muon) {of_norm(0, 1, 39)}", f"gpt (AdamW) {of_norm(1, 2, 40)}"]


def counted_norms(state: RunState) -> tuple[int, int]:
    """How many norms the summary has, and of how many steps."""
    norms = gradient_norm(state)
    (main,) = (line for line in report_of(state) if line.startswith("gradient norm ") and "read at" in line)
    assert f"read at {norms.course.measured_steps:,} of {norms.of_steps:,} steps" in main
    return norms.course.measured_steps, norms.of_steps


def test_norms_are_counted_of_steps_of_their_optimizer() -> None:
    assert counted_norms(state_after(*gan(40))) == (20, 20)
    assert counted_norms(state_after(*stages(20))) == (20, 20)
    assert counted_norms(state_after(*per_parameter(layers=3, count=5))) == (5, 5)


def test_norms_of_later_stage_spare_earlier_steps() -> None:
    listed = models(Node("Generator", "G", (), (linear("l1"),)), Node("Discriminator", "D", (), (linear("l1"),)))
    owners = owner(listed, "Generator"), owner(listed, "Discriminator")
    state = state_after(*run_of(listed, owners, steps([0, 1] * 10 + [1] * 12, 2)))
    assert (state.main_optimizer, state.main_since) == (1, 20)
    assert counted_norms(state) == (13, 13)


def test_norms_of_new_models_spare_earlier_steps() -> None:
    """One optimizer for both, whose second model takes the place of the first."""
    listed = models(Node("Net", "Net", (), (linear("l1"),)))
    named = ev.GradientsMeasured(1.5, 10, norm_at(0, 10), None, (1.0,) * len(listed.parameters), optimizer=0)
    other = replace(listed, step=10, models=(replace(listed.models[0], number=9),))
    first, second = steps([0] * 10, 1), steps([0] * 30, 1, first=11)
    state = state_after(*run_of(listed, [owner(listed, "Net")], first, [named, other], second))
    assert state.norm_summary.since_step == 10
    assert counted_norms(state) == (30, 30)


def renewed(listed: ev.ModelsFound, gone: int, *, are_described: bool = True) -> ev.OptimizersFound:
    """The optimizers of the only model after `gone` of them have been freed."""
    freed = OptimizerInfo("Adam", 1, (), 2, freed=True)
    return ev.OptimizersFound(1.0, gone, (*[freed] * gone, *([owner(listed, "Net")] if are_described else [])))


def test_new_optimizer_continues_curves_of_gone() -> None:
    """As in a script that makes one for each batch."""
    listed = models(Node("Net", "Net", (), (linear("l1"),)))
    state = state_after(*[listed, renewed(listed, 0)])
    for step in range(1, 101):
        # After some time the probe describes them only now and then.
        if step < 15:
            apply(state, renewed(listed, step - 1))
        for event in steps([step - 1], step, first=step, loss=lambda _, number: loss_at(0, number)):
            apply(state, event)
    assert [*state.loss] == [(step, loss_at(0, step)) for step in range(1, 101)]
    assert [*state.of_optimizers] == [99]
    assert state.main_since == 0
    assert texts_of(state, "loss") == [of_loss(0, 1, 100)]
    assert not optimizer_turns(state).shown


def test_new_generator_optimizer_keeps_place_and_steps() -> None:
    state = state_after(*gan(40))
    old, other = state.optimizers
    apply(
        state, ev.OptimizersFound(3.0, 40, (replace(old, parameters=(), unknown_parameters=2, freed=True), other, old))
    )
    for event in steps([1, 2] * 10, 3, first=41):
        apply(state, event)
    turns = optimizer_turns(state)
    assert [(each.index, each.name, each.steps) for each in turns.shown] == [
        (1, "Discriminator", 30),
        (2, "Generator", 30),
    ]
    assert turns.shown[1].curves.loss.steps[0] == 2


def test_stride_of_optimizer_is_distance_of_its_steps() -> None:
    state = state_after(*sac(40))
    strides = [stride_of(state, each.index) for each in optimizer_turns(state).shown]
    assert strides == [2, 4, 4], "the critics make two of four steps"
    assert stride_of(state_after(*per_parameter(20, 5))) == 40
    assert stride_of(RunState()) == 1
