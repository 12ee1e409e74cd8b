"""A script that sets `requires_grad` itself: what a person froze stays frozen, and nothing else is fought over."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from helpers.toggling import X, bits, freeze, small, step, unfreeze
from helpers.training import square_step
from helpers.watched import watched
from torch import nn

from gradtui.protocol.commands import Undo
from gradtui.protocol.events import CommandApplied, FreezeOverridden, FreezeStateChanged, FreezeVerified


@pytest.mark.parametrize("budget", [100.0, 0.0], ids=["every step looked at", "steps only marked"])
def test_what_the_script_sets_back_is_frozen_again(budget: float) -> None:
    model = small()
    with watched(budget=budget) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for number in seen.steps(60, {2: freeze("0")}):
            if number == 3:
                held = model[0].weight.detach().clone()
            if number in (40, 50):
                model.requires_grad_(True)
            step(model, optimizer)
            assert model[0].weight.requires_grad is (number < 2)
    assert torch.equal(model[0].weight, held)
    (contended,) = seen.all(FreezeOverridden)
    assert (contended.paths, contended.times, contended.given_up) == (("0.weight", "0.bias"), 1, None)
    in_force = seen.all(FreezeStateChanged)[-1]
    assert (in_force.frozen, in_force.contending) == ((0, 1), (0, 1))
    (noted,) = [entry.text for entry in seen.state.log if entry.kind == "contending"]
    assert noted.startswith("the script has set 0.weight, 0.bias back")
    # Its receipt, and nothing that would say that it moved.
    assert [event.moved for event in seen.all(FreezeVerified)] == [()]


def adversaries() -> tuple[nn.Sequential, nn.Sequential]:
    torch.manual_seed(3)
    generator = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    discriminator = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    return generator, discriminator


def gan(
    generator: nn.Sequential,
    discriminator: nn.Sequential,
    steps: int,
    before: Callable[[int], object],
    *,
    early: bool,
    keep: tuple[str, ...] = (),
) -> list[str]:
    """The discriminator is switched on for its own step and off for the generator's, as many scripts do it.

    Switched `early` it is on before the first forward of its step, else between that and its own. `keep` is what the source
    itself leaves out of that, from step 3 on. Says which of the discriminator's flags were on when it was switched off.
    """
    g = torch.optim.Adam(generator.parameters(), lr=0.01)
    d = torch.optim.Adam(discriminator.parameters(), lr=0.01)
    flags = []

    def switch(on: bool, number: int) -> None:
        for name, parameter in discriminator.named_parameters():
            parameter.requires_grad_(on and not (number >= 3 and name.startswith(keep or "none")))

    for number in range(steps):
        before(number)
        if early:
            switch(True, number)
        fake = generator(X)
        if not early:
            switch(True, number)
        d.zero_grad()
        (discriminator(X).mean() - discriminator(fake.detach()).mean()).square().backward()
        d.step()
        flags.append("".join(str(int(p.requires_grad)) for p in discriminator.parameters()))
        switch(False, number)
        square_step(discriminator, g, generator(X))
    return flags


@pytest.mark.parametrize("early", [True, False])
def test_gan_that_switches_its_discriminator_is_not_fought(early: bool) -> None:
    """What is frozen of it stays where it is, to the bit as if the source left it out; the rest goes on as before."""
    generator, discriminator = adversaries()
    scripted = copy.deepcopy((generator, discriminator))
    with watched() as seen:
        gan(
            generator,
            discriminator,
            12,
            lambda number: seen.submit(freeze("Sequential_2.0")) if number == 3 else None,
            early=early,
        )
    gan(*scripted, 12, lambda _: None, early=early, keep=("0.",))
    assert seen.answers()[0].startswith("froze Sequential_2.0: 2 tensors")
    assert bits(discriminator) == bits(scripted[1])
    assert bits(generator) == bits(scripted[0])
    assert len(seen.all(FreezeOverridden)) == 1


def test_what_was_unfrozen_is_the_scripts() -> None:
    generator, discriminator = adversaries()
    with watched() as seen:
        flags = gan(
            generator,
            discriminator,
            8,
            lambda number: {2: lambda: seen.submit(freeze("Sequential_2.0")), 5: lambda: seen.submit(Undo)}.get(
                number, lambda: None
            )(),
            early=True,
        )
    assert flags == ["1111"] * 2 + ["0011"] * 3 + ["1111"] * 3
    assert not any(p.requires_grad for p in discriminator.parameters())
    assert seen.all(FreezeStateChanged)[-1].contending == ()


def test_module_off_now_can_be_frozen_for_good() -> None:
    """The command comes while the script has switched the discriminator off; a person cannot know that."""
    generator, discriminator = adversaries()
    with watched() as seen:
        g = torch.optim.Adam(generator.parameters(), lr=0.01)
        d = torch.optim.Adam(discriminator.parameters(), lr=0.01)
        for number in range(6):
            discriminator.requires_grad_(True)
            discriminator(X).square().mean().backward()
            d.step()
            discriminator.requires_grad_(False)
            if number == 3:
                held = discriminator[0].weight.detach().clone()
                seen.submit(freeze("Sequential.0"))
            discriminator(generator(X)).square().mean().backward()
            g.step()
        seen.submit(Undo)
        discriminator(generator(X)).square().mean().backward()
    assert seen.answers()[0].startswith("froze Sequential.0: 2 tensors")
    assert torch.equal(discriminator[0].weight, held)
    # What was off before is off again.
    assert not discriminator[0].weight.requires_grad


def test_freezing_again_never_leaves_nothing_to_train() -> None:
    """A script that unfreezes from the top: when what the person froze is all that trains, it is left to the script."""
    model = small()
    model[4].requires_grad_(False)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in seen.steps(6, {1: freeze("0")}):
            if number == 3:
                model.requires_grad_(False)
                model[0].requires_grad_(True)
            step(model, optimizer)
    assert model[0].weight.requires_grad
    (contended,) = seen.all(FreezeOverridden)
    assert "nothing would train" in (contended.given_up or "")
    assert seen.all(FreezeStateChanged)[-1].frozen == ()
    assert seen.letters()["0.weight"] == "T"


def test_gradient_given_within_step_is_not_applied() -> None:
    """Flags set between boundary and backward: the tensor still holds still, and weight decay does not reach it."""
    model = small()
    with watched() as seen:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        for number in seen.steps(30, {2: freeze("0")}):
            optimizer.zero_grad(set_to_none=False)
            model(X)
            if number == 3:
                held = model[0].weight.detach().clone()
            if number >= 3:
                model.requires_grad_(True)
            model(X).square().mean().backward()
            assert number < 3 or model[0].weight.grad is not None
            optimizer.step()
    assert torch.equal(model[0].weight, held)
    told = seen.all(FreezeOverridden)
    assert [event.times for event in told] == [1]


def test_the_detail_and_the_summary_say_who_contends() -> None:
    from helpers.summaries import summarised

    from gradtui.tui.explanations.explanations import explain

    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in seen.steps(4, {1: freeze("0.bias")}):
            if number == 3:
                model.requires_grad_(True)
            step(model, optimizer)
    labels = {row: {fact.label for fact in explain(seen.state, ~row)} for row in range(2)}
    assert ("contending" in labels[0], "contending" in labels[1]) == (False, True)
    assert summarised(seen.state)["freezes"] == {
        "frozen": ["0.bias"],
        "contending": ["0.bias"],
        "holding_statistics": [],
        "rows": [],
        "added_to_optimizers": [],
        "trained_and_taken_out": [],
    }


def test_a_person_who_unfreezes_ends_it() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in seen.steps(6, {1: freeze("0")}):
            if number == 3:
                model.requires_grad_(True)
                seen.submit(unfreeze("0"))
            step(model, optimizer)
    assert model[0].weight.requires_grad
    assert [event.text.partition(":")[0] for event in seen.all(CommandApplied)] == ["froze 0", "unfroze 0"]
    last = seen.all(FreezeStateChanged)[-1]
    assert (last.frozen, last.contending) == ((), ())
