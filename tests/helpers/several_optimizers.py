"""Scripts with several optimizers, which write the losses and norms of their own steps to a file: a small GAN, and SAC.

Run as `several_optimizers.py gan|sac ITERATIONS FILE`.
"""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path

import torch
from torch import nn

F = nn.functional
Steps = list[tuple[str, float, float]]
"""The optimizer, the loss and the total norm of each step."""


class Generator(nn.Sequential):
    pass


class Discriminator(nn.Sequential):
    pass


class Critic(nn.Sequential):
    pass


class Actor(nn.Sequential):
    pass


def step(made: Steps, name: str, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """Step, and note what gradtui must show of it."""
    optimizer.zero_grad()
    loss.backward()
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
    norm = torch.stack([gradient.double().norm() for gradient in gradients]).norm()
    made.append((name, loss.item(), norm.item()))
    optimizer.step()


def gan(iterations: int) -> Steps:
    generator = Generator(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
    discriminator = Discriminator(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    made: Steps = []
    for _ in range(iterations):
        fake, real = generator(torch.randn(8, 4)), torch.randn(8, 8) + 1
        on_real, on_fake = discriminator(real), discriminator(fake.detach())
        loss = F.softplus(-on_real).mean() + F.softplus(on_fake).mean()
        step(made, "Discriminator", optimizer_d, loss)
        step(made, "Generator", optimizer_g, F.softplus(-discriminator(fake)).mean())
    return made


def sac(iterations: int) -> Steps:
    """With rewards of about 10, so that the losses of critics and actor differ by an order of magnitude."""
    actor, qf1, qf2 = (
        kind(nn.Linear(size, 16), nn.ReLU(), nn.Linear(16, 1)) for kind, size in ((Actor, 3), (Critic, 4), (Critic, 4))
    )
    log_alpha = torch.zeros(1, requires_grad=True)
    q_optimizer = torch.optim.Adam(chain(qf1.parameters(), qf2.parameters()), lr=1e-3)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=1e-3)
    made: Steps = []
    for iteration in range(iterations):
        seen, reward = torch.randn(16, 4), 10 * torch.randn(16, 1)
        loss = F.mse_loss(qf1(seen), reward) + F.mse_loss(qf2(seen), reward)
        step(made, "Critic + Critic_2", q_optimizer, loss)
        if iteration % 2 == 0:
            state = torch.randn(16, 3)
            acted = torch.cat([state, torch.tanh(actor(state))], 1)
            step(made, "Actor", actor_optimizer, -torch.min(qf1(acted), qf2(acted)).mean())
            step(made, "1 tensor", alpha_optimizer, -(log_alpha.exp() * acted[:, 3].detach().mean()).sum() + 3)
    return made


if __name__ == "__main__":
    torch.manual_seed(0)
    Path(sys.argv[3]).write_text(json.dumps({"gan": gan, "sac": sac}[sys.argv[1]](int(sys.argv[2]))))
