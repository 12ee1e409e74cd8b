"""What the optimizers of a run are called."""

from __future__ import annotations

from helpers.fakes import Node
from helpers.optimizer_runs import (
    gan,
    linear,
    models,
    owner,
    per_parameter,
    run_of,
    sac,
    stages,
    steps,
    two_of_one_model,
)
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import OptimizerInfo
from gradtui.run.reducer import apply
from gradtui.run.state.optimizers.optimizer_names import MAX_PART_WIDTH, optimizer_names
from gradtui.run.state.run_state import RunState


def test_an_optimizer_has_the_name_of_its_model() -> None:
    assert optimizer_names(state_after(*gan())) == {1: "Discriminator", 0: "Generator"}
    assert optimizer_names(state_after(*stages())) == {0: "encoder", 1: "head"}


def test_model_has_both_names_and_lone_tensor() -> None:
    assert optimizer_names(state_after(*sac())) == {0: "qf1 + qf2", 1: "actor", 2: "1 tensor"}


def test_names_of_equal_models_are_counted() -> None:
    critics = [Node("critic", "Critic", (), (linear("l1"),)) for _ in range(2)]
    listed = models(*critics, Node("actor", "Actor", (), (linear("l1"),)))
    owners = owner(listed, "critic"), owner(listed, "actor", unknown=2)
    assert optimizer_names(state_after(*run_of(listed, owners, steps([0, 1], 2)))) == {
        0: "critic ×2",
        1: "actor + 2 tensors",
    }


def test_optimizers_of_model_have_type_or_number() -> None:
    assert optimizer_names(state_after(*two_of_one_model())) == {0: "gpt (Muon)", 1: "gpt (AdamW)"}
    assert optimizer_names(state_after(*two_of_one_model(("Adam", "Adam")))) == {0: "gpt (Adam 1)", 1: "gpt (Adam 2)"}
    # Each layer has a weight and a bias, and each of them an optimizer of its own.
    assert list(optimizer_names(state_after(*per_parameter(2))).values()) == [
        "net.l0 (SGD 1)",
        "net.l0 (SGD 2)",
        "net.l1 (SGD 3)",
        "net.l1 (SGD 4)",
    ]


def test_part_of_model_has_its_own_name() -> None:
    agent = Node("agent", "Agent", (), (linear("actor"), linear("critic1"), linear("critic2"), linear("encoder")))
    listed = models(agent)
    owners = (
        owner(listed, "agent.actor"),
        owner(listed, "agent.critic1", "agent.critic2"),
        owner(listed, "agent.actor", "agent.critic1", "agent.critic2", "agent.encoder.bias"),
        owner(listed, "agent"),
    )
    assert list(optimizer_names(state_after(*run_of(listed, owners, steps(range(4), 4)))).values()) == [
        "agent.actor",
        "agent.critic1 + agent.critic2",
        "agent (Adam 3)",
        "agent (Adam 4)",
    ]


def test_a_name_has_a_bounded_length() -> None:
    roots = [Node(f"{'very_' * 9}long_{index}", "M", (), (linear("l1"),)) for index in range(9)]
    listed = models(*roots)
    (name,) = optimizer_names(
        state_after(*run_of(listed, [owner(listed, *(root.name for root in roots))], steps([0], 1)))
    ).values()
    parts = name.split(" + ")
    assert parts[-1] == "7 more"
    assert [len(part) for part in parts[:-1]] == [MAX_PART_WIDTH] * 2
    assert parts[0].endswith("_long_0")


def test_optimizer_of_unknown_has_type_and_number() -> None:
    known = OptimizerInfo("AdamW", 1, (), 7)
    state = state_after(*[ev.OptimizersFound(0.0, 0, (known,)), *steps([0, 1, -1], 2)])
    assert optimizer_names(state) == {0: "AdamW 1", 1: "optimizer 2", -1: "no optimizer"}


def test_the_name_outlives_the_model_and_the_optimizer() -> None:
    state = state_after(*gan())
    inception = models(Node("inception", "Inception", (), (linear("l1"),)), step=40)
    apply(state, inception)
    assert optimizer_names(state) == {1: "Discriminator", 0: "Generator"}
    gone = [OptimizerInfo("Adam", 1, (), 2, freed=True)] * 2
    apply(state, ev.OptimizersFound(3.0, 40, tuple(gone)))
    assert optimizer_names(state) == {1: "Discriminator", 0: "Generator"}


def test_later_found_model_names_its_optimizer() -> None:
    listed = models(Node("Net", "Net", (), (linear("l1"),)))
    state = RunState()
    unlisted = OptimizerInfo("SGD", 1, (), 2)
    for event in (ev.OptimizersFound(0.0, 0, (unlisted,)), *steps([0], 1), listed):
        apply(state, event)
    assert optimizer_names(state) == {0: "2 tensors"}
    apply(state, ev.OptimizersFound(1.0, 1, (owner(listed, "Net"),)))
    assert optimizer_names(state) == {0: "Net"}
