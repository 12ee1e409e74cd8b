"""Correct training of several models, and of models of which only a part trains.

`MODELS` maps a name to a function without arguments.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from correct_loops import STEPS, batch, loss_of, model, sgd
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint


def _adversaries() -> tuple[nn.Module, nn.Module, torch.optim.Adam, torch.optim.Adam]:
    generator, critic = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)), model()
    adams = [torch.optim.Adam(net.parameters(), lr=1e-3, betas=(0.5, 0.999)) for net in (generator, critic)]
    return generator, critic, adams[0], adams[1]


def dcgan() -> None:
    """The critic's two backwards, on real and on generated data, are added without division."""
    generator, critic, of_generator, of_critic = _adversaries()
    for _ in range(STEPS):
        critic.zero_grad()
        F.softplus(-critic(torch.randn(8, 8))).mean().backward()
        generated = generator(torch.randn(8, 4))
        F.softplus(critic(generated.detach())).mean().backward()
        of_critic.step()
        generator.zero_grad()
        F.softplus(-critic(generated)).mean().backward()
        of_generator.step()


def wgan_gp() -> None:
    """Five steps of the critic with a gradient penalty to one of the generator, with flags."""
    generator, critic, of_generator, of_critic = _adversaries()
    for step in range(STEPS):
        critic.requires_grad_(True)
        of_critic.zero_grad()
        real, generated = torch.randn(8, 8), generator(torch.randn(8, 4)).detach()
        between = torch.lerp(real, generated, torch.rand(8, 1)).requires_grad_(True)
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = 10 * (slope.norm(dim=1) - 1).square().mean()
        (critic(generated).mean() - critic(real).mean() + penalty).backward()
        of_critic.step()
        if step % 5 == 4:
            critic.requires_grad_(False)
            of_generator.zero_grad()
            (-critic(generator(torch.randn(8, 4))).mean()).backward()
            of_generator.step()


def byol() -> None:
    """A target network in train mode, without gradients, that follows the online one."""
    online = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
    target, predictor = copy.deepcopy(online).requires_grad_(False), nn.Linear(8, 8)
    optimizer = sgd(nn.ModuleList([online, predictor]))
    for _ in range(STEPS):
        inputs = torch.randn(8, 8)
        with torch.no_grad():
            wanted = target(inputs + 0.1 * torch.randn(8, 8))
        loss = F.mse_loss(predictor(online(inputs)), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for follower, leader in zip(target.parameters(), online.parameters()):
                follower.lerp_(leader, 0.01)


def averaged_model() -> None:
    """A moving average by torch, evaluated now and then."""
    net = model()
    average = torch.optim.swa_utils.AveragedModel(net)
    optimizer = sgd(net)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()
        average.update_parameters(net)
        if step % 10 == 9:
            average.eval()
            with torch.no_grad():
                average(torch.randn(8, 8))


def averaged_copy_with_flags() -> None:
    """The average keeps requires_grad, and runs under no_grad only."""
    net = model()
    average = copy.deepcopy(net)
    optimizer = sgd(net)
    for _ in range(STEPS):
        with torch.no_grad():
            wanted = average(torch.randn(8, 8))
        optimizer.zero_grad()
        (loss_of(net) + 0.0 * wanted.mean()).backward()
        optimizer.step()
        with torch.no_grad():
            for follower, leader in zip(average.parameters(), net.parameters()):
                follower.lerp_(leader, 0.1)


def deep_q_network() -> None:
    online = model()
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    for step in range(STEPS):
        inputs, reward = batch()
        expected = reward + 0.9 * target(torch.randn(8, 8)).detach()
        loss = F.smooth_l1_loss(online(inputs), expected)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(online.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 9:
            target.load_state_dict(online.state_dict())


def actor_critic() -> None:
    """The actor's loss sends gradients through the critic, whose optimizer clears them before its own backward."""
    actor, critic = nn.Linear(8, 2), nn.Linear(10, 1)
    of_actor, of_critic = sgd(actor), sgd(critic)
    for _ in range(STEPS):
        inputs, value = batch()
        action = actor(inputs)
        of_critic.zero_grad()
        F.mse_loss(critic(torch.cat([inputs, action.detach()], 1)), value).backward()
        of_critic.step()
        of_actor.zero_grad()
        (-critic(torch.cat([inputs, actor(inputs)], 1)).mean()).backward()
        of_actor.step()


def copy_trained_by_hand() -> None:
    """The script compares an optimizer of its own with torch's."""
    net = model()
    copied = copy.deepcopy(net)
    optimizer = sgd(net)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()
        copied.zero_grad()
        loss_of(copied).backward()
        with torch.no_grad():
            for parameter in copied.parameters():
                parameter -= 0.01 * parameter.grad


def teacher_and_student() -> None:
    """The teacher is in eval mode, its flags are as they were."""
    teacher, student = model(dropout=True).eval(), model()
    optimizer = sgd(student)
    for _ in range(STEPS):
        inputs, _ = batch()
        with torch.no_grad():
            wanted = teacher(inputs)
        optimizer.zero_grad()
        F.mse_loss(student(inputs), wanted).backward()
        optimizer.step()


def teacher_in_train_mode() -> None:
    """On purpose, as some methods do it."""
    teacher, student = model(dropout=True).requires_grad_(False), model()
    optimizer = sgd(student)
    for _ in range(STEPS):
        inputs, _ = batch()
        with torch.no_grad():
            wanted = teacher(inputs)
        optimizer.zero_grad()
        F.mse_loss(student(inputs), wanted).backward()
        optimizer.step()


def frozen_batchnorm_in_eval() -> None:
    """The backbone is frozen, and in eval mode again after each train()."""
    backbone = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU()).requires_grad_(False)
    net = nn.Sequential(backbone, nn.Linear(16, 1))
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.01)
    for _ in range(3):
        net.train()
        backbone.eval()
        for _ in range(10):
            optimizer.zero_grad()
            loss_of(net).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            loss_of(net)


def fine_tuning_in_eval_mode() -> None:
    """From the first step on."""
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 1)).eval()
    optimizer = sgd(net)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()


class _Adapted(nn.Module):
    """A frozen layer and a low-rank update, whose second factor is zero at first."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(0.1 * torch.randn(layer.in_features, 2))
        self.up = nn.Parameter(torch.zeros(2, layer.out_features))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + x @ self.down @ self.up


def lora() -> None:
    """The optimizer has all parameters; the frozen ones never get a gradient."""
    net = nn.Sequential(_Adapted(nn.Linear(8, 16)), nn.ReLU(), _Adapted(nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()


def prompt_of_a_frozen_model() -> None:
    encoder, prompt = model().requires_grad_(False), nn.Parameter(torch.zeros(1, 8))
    optimizer = torch.optim.SGD([prompt], lr=0.1)
    for _ in range(STEPS):
        inputs, targets = batch()
        optimizer.zero_grad()
        F.mse_loss(encoder(inputs + prompt), targets).backward()
        optimizer.step()


def gradual_unfreezing() -> None:
    """The optimizer has the frozen layer from the start."""
    net = model()
    net[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for step in range(STEPS):
        if step == 10:
            net[0].requires_grad_(True)
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()


def alternating_flags() -> None:
    """Each layer is frozen while the other trains, and its gradient is None then."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for step in range(STEPS):
        net[0].requires_grad_(step % 2 == 0)
        net[2].requires_grad_(step % 2 == 1)
        optimizer.zero_grad(set_to_none=True)
        loss_of(net).backward()
        optimizer.step()


class _Checkpointed(nn.Module):
    def __init__(self, *, is_reentrant: bool, is_frozen: bool) -> None:
        super().__init__()
        self.tower = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2)])
        self.tower.requires_grad_(not is_frozen)
        self.head, self._is_reentrant = nn.Linear(8, 1), is_reentrant

    def forward(self, x: Tensor) -> Tensor:
        for block in self.tower:
            x = checkpoint(block, x, use_reentrant=self._is_reentrant)
        return self.head(x)  # type: ignore[no-any-return]


def checkpointed() -> None:
    net = _Checkpointed(is_reentrant=False, is_frozen=False)
    optimizer = sgd(net)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()


def frozen_tower_in_reentrant_checkpoints() -> None:
    """torch warns that no input requires a gradient; nothing in there is to train."""
    net = _Checkpointed(is_reentrant=True, is_frozen=True)
    optimizer = sgd(net.head)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()


class _Experts(nn.Module):
    """Runs one of three layers by turns, and has a head for a loss that this run does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(8, 16) for _ in range(3)])
        self.head, self.auxiliary, self.turn = nn.Linear(16, 1), nn.Linear(16, 4), 0

    def forward(self, x: Tensor) -> Tensor:
        self.turn += 1
        hidden = self.experts[self.turn % 3](x).relu()
        self.unused = self.auxiliary(hidden.detach())
        return self.head(hidden)  # type: ignore[no-any-return]


def conditional_computation() -> None:
    net = _Experts()
    optimizer = sgd(net)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()


def encoder_joins_later() -> None:
    """The encoder is computed under no_grad for ten steps; then the optimizer gets it."""
    encoder, head = nn.Linear(8, 16), nn.Linear(16, 1)
    optimizer = sgd(head)
    for step in range(STEPS):
        if step == 10:
            optimizer.add_param_group({"params": list(encoder.parameters())})
        inputs, targets = batch()
        with torch.set_grad_enabled(step >= 10):
            hidden = encoder(inputs).relu()
        optimizer.zero_grad()
        F.mse_loss(head(hidden), targets).backward()
        optimizer.step()


def tied_weights() -> None:
    embedding, head = nn.Embedding(20, 16), nn.Linear(16, 20, bias=False)
    head.weight = embedding.weight
    net = nn.Sequential(embedding, nn.Linear(16, 16), nn.ReLU(), head)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.001)
    for _ in range(STEPS):
        tokens = torch.randint(20, (8,))
        optimizer.zero_grad()
        F.cross_entropy(net(tokens), tokens).backward()
        optimizer.step()


def saliency_between_steps() -> None:
    """A backward to the input between two steps, whose gradients for the parameters are cleared."""
    net = model()
    optimizer = sgd(net)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()
        if step % 10 == 9:
            inputs = torch.randn(8, 8, requires_grad=True)
            net(inputs).sum().backward()
            net.zero_grad()


def adversarial_training() -> None:
    """A first backward for the attack on the input, whose gradients for the parameters are cleared."""
    net = model()
    optimizer = sgd(net)
    for _ in range(STEPS):
        inputs, targets = batch()
        inputs.requires_grad_(True)
        F.mse_loss(net(inputs), targets).backward()
        attacked = (inputs + 0.1 * inputs.grad.sign()).detach()
        optimizer.zero_grad()
        F.mse_loss(net(attacked), targets).backward()
        optimizer.step()


MODELS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        dcgan, wgan_gp, byol, averaged_model, averaged_copy_with_flags, deep_q_network, actor_critic,
        copy_trained_by_hand, teacher_and_student,
        teacher_in_train_mode, frozen_batchnorm_in_eval, fine_tuning_in_eval_mode, lora, prompt_of_a_frozen_model,
        gradual_unfreezing, alternating_flags, checkpointed, frozen_tower_in_reentrant_checkpoints,
        conditional_computation, encoder_joins_later, tied_weights, saliency_between_steps,
        adversarial_training,
    )
}  # fmt: skip
