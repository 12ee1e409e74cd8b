"""A generator and a discriminator that train in turns."""

from __future__ import annotations

import torch
from torch import nn

from helpers.training import square_step
from helpers.watched import Watched, watched


def adversaries(rounds: int, *, ends_with: str = "generator") -> Watched:
    """A GAN that generates once a round: the generator's backward runs through a forward of the discriminator's step.

    `ends_with`: whose step is the last.
    """
    generator = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 16))
    discriminator = nn.Linear(16, 1)
    with watched() as seen:
        optimizer_d = torch.optim.SGD(discriminator.parameters(), lr=0.1)
        optimizer_g = torch.optim.SGD(generator.parameters(), lr=0.1)
        for number in range(rounds):
            fake = generator(torch.ones(32, 8))
            square_step(discriminator, optimizer_d, fake.detach())
            if number == rounds - 1 and ends_with == "discriminator":
                break
            optimizer_g.zero_grad()
            discriminator(fake).mean().backward()
            optimizer_g.step()
    return seen
