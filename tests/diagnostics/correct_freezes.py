"""Correct training with frozen parts, averaged copies and hooks, which looks like what a rule is about.

`FREEZES` maps a name to a function without arguments.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from correct_loops import STEPS, batch, loss_of, model, sgd
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils.parametrizations import spectral_norm
from torch.optim.swa_utils import AveragedModel, update_bn


def spectral_critic_in_turns() -> None:
    """A critic with spectral norm is frozen while the generator trains."""
    generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
    critic = nn.Sequential(spectral_norm(nn.Linear(8, 16)), nn.ReLU(), spectral_norm(nn.Linear(16, 1)))
    of_generator, of_critic = (torch.optim.Adam(net.parameters(), lr=1e-3) for net in (generator, critic))
    for _ in range(STEPS):
        critic.requires_grad_(True)
        of_critic.zero_grad()
        generated = generator(torch.randn(8, 4))
        (F.softplus(-critic(torch.randn(8, 8))).mean() + F.softplus(critic(generated.detach())).mean()).backward()
        of_critic.step()
        critic.requires_grad_(False)
        of_generator.zero_grad()
        F.softplus(-critic(generated)).mean().backward()
        of_generator.step()


def stochastic_weight_averaging() -> None:
    """The average leaves buffers out, and its statistics are computed at the end."""
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    average, optimizer = AveragedModel(net), sgd(net)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()
        average.update_parameters(net)
    update_bn([batch()[0] for _ in range(3)], average)
    with torch.no_grad():
        average.eval()(batch()[0])


def teacher_in_bfloat16() -> None:
    """A fixed teacher in a type of 16 bits, with the statistics that it was saved with."""
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    teacher, optimizer = copy.deepcopy(net).requires_grad_(False).eval().bfloat16(), sgd(net)
    for _ in range(STEPS):
        inputs, _ = batch()
        with torch.no_grad():
            targets = teacher(inputs.bfloat16()).float()
        optimizer.zero_grad()
        F.mse_loss(net(inputs), targets).backward()
        optimizer.step()


def hooks_that_log_and_clip() -> None:
    """Hooks on the gradients of all parameters, of which one belongs to an embedding with rows that are not used."""
    net = nn.Sequential(
        nn.Embedding(40, 8, padding_idx=0), nn.Flatten(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1)
    )
    seen: list[float] = []
    for parameter in net.parameters():
        parameter.register_hook(lambda gradient: seen.append(float(gradient.norm())))
        parameter.register_hook(lambda gradient: gradient.clamp(-1, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        net(torch.randint(0, 20, (8, 3))).square().mean().backward()
        optimizer.step()


def layers_left_out_at_random() -> None:
    """Stochastic depth."""
    first, blocks, last = nn.Linear(8, 8), nn.ModuleList(nn.Linear(8, 8) for _ in range(4)), nn.Linear(8, 1)
    net = nn.ModuleList([first, blocks, last])
    optimizer = sgd(net)
    for _ in range(STEPS):
        inputs, targets = batch()
        hidden, kept = first(inputs), torch.rand(len(blocks)) > 0.5
        for block, is_kept in zip(blocks, kept):
            hidden = hidden + torch.tanh(block(hidden)) if is_kept else hidden
        optimizer.zero_grad()
        F.mse_loss(last(hidden), targets).backward()
        optimizer.step()


def a_head_for_each_half() -> None:
    """The second half of the training uses another head."""
    body, heads = model(), nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])
    net = nn.ModuleList([body, heads])
    optimizer = sgd(net)
    for step in range(2 * STEPS):
        inputs, targets = batch()
        optimizer.zero_grad()
        F.mse_loss(heads[step // STEPS](body(inputs)), targets).backward()
        optimizer.step()


def unused_head_with_a_factor_of_zero() -> None:
    """As it is done for DistributedDataParallel."""
    net, unused = model(), nn.Linear(8, 3)
    optimizer = sgd(nn.ModuleList([net, unused]))
    for _ in range(STEPS):
        inputs, targets = batch()
        optimizer.zero_grad()
        (F.mse_loss(net(inputs), targets) + 0 * unused(inputs).sum()).backward()
        optimizer.step()


def rounding_with_an_estimator() -> None:
    """A straight-through estimator."""
    first, last = nn.Linear(8, 8), nn.Linear(8, 1)
    optimizer = sgd(nn.ModuleList([first, last]))
    for _ in range(STEPS):
        inputs, targets = batch()
        hidden = first(inputs)
        optimizer.zero_grad()
        F.mse_loss(last(hidden + (hidden.round() - hidden).detach()), targets).backward()
        optimizer.step()


def attack_on_a_frozen_model() -> None:
    """Only the input is trained, and by hand."""
    net = model().requires_grad_(False).eval()
    inputs, targets = batch()
    for _ in range(STEPS):
        inputs = inputs.detach().requires_grad_(True)
        F.mse_loss(net(inputs), targets).backward()
        inputs = inputs + 0.1 * inputs.grad.sign()


def attack_through_a_frozen_body() -> None:
    """The head is trained with attacked inputs. The gradient of the first backward is only for the input."""
    body, head = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).requires_grad_(False).eval(), nn.Linear(8, 1)
    optimizer = sgd(head)
    for _ in range(STEPS):
        inputs, targets = batch()
        F.mse_loss(head(body(inputs.requires_grad_(True))), targets).backward()
        assert inputs.grad is not None
        optimizer.zero_grad()
        F.mse_loss(head(body(inputs.detach() + 0.1 * inputs.grad.sign())), targets).backward()
        optimizer.step()


def quantization_aware_head() -> None:
    """A head is trained on a frozen layer whose observer follows what the layer computes."""
    from torch.ao.quantization import FakeQuantize, MovingAverageMinMaxObserver

    observer = FakeQuantize(observer=MovingAverageMinMaxObserver)
    net = nn.Sequential(nn.Linear(8, 8).requires_grad_(False), observer, nn.Linear(8, 1))
    optimizer = sgd(net[2])
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()


FREEZES: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        spectral_critic_in_turns, stochastic_weight_averaging, teacher_in_bfloat16, hooks_that_log_and_clip,
        layers_left_out_at_random, a_head_for_each_half, unused_head_with_a_factor_of_zero, rounding_with_an_estimator,
        attack_on_a_frozen_model, attack_through_a_frozen_body, quantization_aware_head,
    )
}  # fmt: skip
