"""Two models, two optimizers, and one graph that crosses both."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
for step in range(20):
    fake, real = generator(torch.randn(8, 4)), torch.randn(8, 2) + 2
    of_critic.zero_grad()
    between = (real + torch.rand(8, 1) * (fake.detach() - real)).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).square().mean()
    loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty
    loss.backward()
    of_critic.step()
    of_generator.zero_grad()
    (-critic(fake).mean()).backward()
    of_generator.step()
    print(step, loss.item(), penalty.item())
leave(generator, critic)
