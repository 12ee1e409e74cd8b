"""A freeze leaves something to train: what counts as left, and what does not."""

from __future__ import annotations

import copy

import torch
from helpers.toggling import X, ask, freeze, small, unfreeze
from helpers.training import square_step
from helpers.watched import watched
from torch import nn
from zoo import SPECIMENS

from gradtui.protocol.events import CommandApplied


def test_untrained_teacher_is_not_left_to_train() -> None:
    """A deep copy still requires gradients, though the script calls it under no_grad and no optimizer has it."""
    student = small()
    teacher = copy.deepcopy(student)
    with watched() as seen:
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for _ in seen.steps(5, {3: freeze("Sequential_2")}):
            with torch.no_grad():
                target = teacher(X)
            optimizer.zero_grad()
            (student(X) - target - 1).square().mean().backward()
            optimizer.step()
    assert [model.name for model in seen.state.tree.models] == ["Sequential", "Sequential_2"]
    assert "nothing would train" in seen.answers()[0]
    assert student[0].weight.requires_grad


def test_unfrozen_parameter_counts_after_its_first_gradient() -> None:
    """Under no_grad it never gets one, and a backward with nothing else left would raise an error in the script."""
    under_no_grad, prefix = SPECIMENS["under_no_grad"]().model, SPECIMENS["frozen_prefix"]().model
    for model in (under_no_grad, prefix):
        model.backbone.requires_grad_(False)
        inputs = SPECIMENS["frozen_prefix"]().batch(0)[0]
        with watched() as seen:
            optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
            for number in range(8):
                if number == 3:
                    seen.submit(unfreeze("backbone"))
                    seen.submit(freeze("head"))
                if number == 5:
                    seen.submit(freeze("head"))
                square_step(model, optimizer, inputs)
        first, second, third = seen.answers()
        assert first.startswith("unfroze backbone")
        assert "nothing would train" in second
        assert "just unfrozen counts once" in second
        assert third.startswith("froze head") == (model is prefix)
        assert model.head.weight.requires_grad == (model is under_no_grad)


def test_toggling_unreached_parameter_does_not_reach_it() -> None:
    model = SPECIMENS["under_no_grad"]().model
    inputs = SPECIMENS["under_no_grad"]().batch(0)[0]
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(6):
            if number == 3:
                for make in (freeze("backbone"), unfreeze("backbone"), freeze("head")):
                    seen.submit(make)
            square_step(model, optimizer, inputs)
    assert [answer.split(":")[0] for answer in seen.answers()][:2] == ["froze backbone", "unfroze backbone"]
    assert "nothing would train" in seen.answers()[2]


def test_unfrozen_parameter_is_tried_after_its_optimizer_steps() -> None:
    """Of a GAN: the critic steps several times before the generator's loss is computed again."""
    generator, critic = small(), nn.Linear(2, 1)
    generator[:4].requires_grad_(False)
    with watched() as seen:
        c = torch.optim.Adam(critic.parameters())
        g = torch.optim.Adam(generator[4].parameters())
        for number in seen.steps(24, {7: unfreeze("Sequential.0")}):
            if number in (10, 15):
                seen.submit(freeze("Sequential.4"))
            critic(generator(X).detach()).square().mean().backward()
            c.step()
            c.zero_grad()
            if number % 6 == 5:
                critic(generator(X)).square().mean().backward()
                g.step()
                g.zero_grad()
    first, second, third = seen.answers()
    assert first.startswith("unfroze Sequential.0: 2 tensors")
    assert "2 joined Adam" in first
    assert "just unfrozen counts once" in second
    assert third.startswith("froze Sequential.4")


def test_formerly_trained_parameter_counts_at_once() -> None:
    model = small()
    seen = ask(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        {2: [freeze("0")], 5: [unfreeze("0"), freeze("2"), freeze("4")], 7: [unfreeze("4"), freeze("0")]},
    )
    assert [answer.split(":")[0] for answer in seen.answers()] == [
        "froze 0", "unfroze 0", "froze 2", "froze 4", "unfroze 4", "froze 0",
    ]  # fmt: skip


def test_all_but_one_may_freeze_before_first_step() -> None:
    model = small()
    seen = ask(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        {0: [freeze("0"), freeze("2"), freeze("4.bias"), freeze("4")]},
    )
    assert [event.step for event in seen.all(CommandApplied)] == [0, 0, 0]
    assert "nothing would train" in seen.answers()[3]


def test_parameters_of_no_model_count_as_left() -> None:
    """A learned temperature beside the model, in the same optimizer."""
    model, scale = small(), nn.Parameter(torch.ones(()))
    with watched() as seen:
        optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.1)
        for _ in seen.steps(4, {2: freeze("")}):
            optimizer.zero_grad()
            (model(X) * scale).square().mean().backward()
            optimizer.step()
    assert seen.answers()[0].startswith("froze the model: 6 tensors")


def test_unreached_behind_grad_scaler_does_not_count() -> None:
    specimen = SPECIMENS["unused_branch"]()
    model, outside = specimen.model, nn.Linear(4, 1)
    with watched() as seen:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        one, two = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(outside.parameters(), lr=0.1)
        for number in seen.steps(4, {2: freeze("UnusedBranch.used")}):
            scaler.scale(outside(model(*specimen.batch(number))).square().mean()).backward()
            for optimizer in (one, two):
                scaler.step(optimizer)
                optimizer.zero_grad()
            scaler.update()
    assert "GradScaler would raise" in seen.answers()[0]


def test_optimizer_without_steps_is_not_emptied() -> None:
    """The generator's first step comes after the discriminator's; in between its boundary is crossed."""
    generator, discriminator = small(), nn.Linear(2, 1)
    with watched() as seen:
        d, g = torch.optim.Adam(discriminator.parameters()), torch.optim.Adam(generator.parameters())
        for number in range(3):
            discriminator(generator(X).detach()).square().mean().backward()
            if number == 0:
                seen.submit(freeze("Sequential"))
            d.step()
            d.zero_grad()
            discriminator(generator(X)).square().mean().backward()
            g.step()
            g.zero_grad()
    assert "without a trainable parameter" in seen.answers()[0]


def test_parameters_count_without_known_optimizer() -> None:
    """The script updates its parameters by hand."""
    model = small()
    with watched() as seen:
        seen.submit(freeze("0"))
        seen.submit(freeze(""))
        model(X).square().mean().backward()
    assert seen.answers()[0].startswith("froze 0")
    assert "nothing would train" in seen.answers()[1]
