"""Training loops that are correct, and that do something which a rule could take for a mistake.

`LOOPS` maps a name to a function without arguments that trains a small model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

STEPS = 30


def model(*, dropout: bool = False) -> nn.Sequential:
    middle: list[nn.Module] = [nn.ReLU(), nn.Dropout(0.1)] if dropout else [nn.ReLU()]
    return nn.Sequential(nn.Linear(8, 16), *middle, nn.Linear(16, 1))


def batch(size: int = 8) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(size, 8)
    return inputs, inputs.sum(1, keepdim=True)


def loss_of(net: nn.Module, size: int = 8) -> Tensor:
    inputs, targets = batch(size)
    return F.mse_loss(net(inputs), targets)


def sgd(net: nn.Module, lr: float = 0.01) -> torch.optim.SGD:
    return torch.optim.SGD(net.parameters(), lr=lr)


def grad_set_to_none() -> None:
    net = model()
    optimizer = sgd(net)
    for _ in range(STEPS):
        for parameter in net.parameters():
            parameter.grad = None
        loss_of(net).backward()
        optimizer.step()


def grad_zeroed_in_place() -> None:
    net = model()
    optimizer = sgd(net)
    for _ in range(STEPS):
        loss_of(net).backward()
        optimizer.step()
        for parameter in net.parameters():
            parameter.grad.zero_()


def grad_data_zeroed_in_place() -> None:
    net = model()
    optimizer = sgd(net)
    for _ in range(STEPS):
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter.grad.data.zero_()
        loss_of(net).backward()
        optimizer.step()


def module_zero_grad() -> None:
    net = model()
    optimizer = sgd(net)
    for _ in range(STEPS):
        net.zero_grad()
        loss_of(net).backward()
        optimizer.step()


def cleared_before_backward() -> None:
    """Between the forward and the backward."""
    net = model()
    optimizer = sgd(net)
    for _ in range(STEPS):
        loss = loss_of(net)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def manual_sgd() -> None:
    net = model()
    for _ in range(STEPS):
        loss_of(net).backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.01 * parameter.grad
        net.zero_grad()


def manual_sgd_by_autograd_grad() -> None:
    net = model()
    for _ in range(STEPS):
        parameters = list(net.parameters())
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss_of(net), parameters)):
            parameter.data -= 0.01 * gradient


def skips_bad_batches() -> None:
    """A batch with a large loss is left out: its gradients are cleared without a step."""
    net = model()
    optimizer = sgd(net)
    for step in range(2 * STEPS):
        optimizer.zero_grad()
        loss = loss_of(net)
        loss.backward()
        if step % 7 == 3:
            continue
        optimizer.step()


def skips_batches_without_backward() -> None:
    net = model()
    optimizer = sgd(net)
    for step in range(2 * STEPS):
        loss = loss_of(net)
        if step % 5 == 2:
            optimizer.zero_grad()
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def warm_up_from_zero() -> None:
    """The learning rate of the first step is 0."""
    net = model()
    optimizer = sgd(net)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 10))
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()
        scheduler.step()


def cosine_to_zero() -> None:
    net = model()
    optimizer = sgd(net)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()
        scheduler.step()


def one_group_waits() -> None:
    """Gradual unfreezing by learning rates: the first layer's is 0 for the first half."""
    net = model()
    groups = [{"params": net[0].parameters(), "lr": 0.0}, {"params": net[2].parameters()}]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    for step in range(STEPS):
        if step == STEPS // 2:
            optimizer.param_groups[0]["lr"] = 0.001
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()


def lbfgs() -> None:
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4)
    for _ in range(STEPS // 3):
        x, y = batch()

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)


def sam() -> None:
    """Sharpness-aware minimisation: the first backward only says where to take the gradient of the second."""
    net = model()
    optimizer = sgd(net)
    for _ in range(STEPS):
        x, y = batch()
        F.mse_loss(net(x), y).backward()
        with torch.no_grad():
            moves = [0.05 * p.grad / (p.grad.norm() + 1e-12) for p in net.parameters() if p.grad is not None]
            for parameter, move in zip(net.parameters(), moves):
                parameter += move
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        with torch.no_grad():
            for parameter, move in zip(net.parameters(), moves):
                parameter -= move
        optimizer.step()
        optimizer.zero_grad()


def pcgrad() -> None:
    """The gradients of two tasks are read, cleared, projected and written back."""
    net = model()
    optimizer = sgd(net)
    for _ in range(STEPS):
        read = []
        for _ in range(2):
            optimizer.zero_grad()
            loss_of(net).backward()
            read.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
        for parameter, one, other in zip(net.parameters(), *read):
            dot = (one * other).sum()
            parameter.grad = one + other if dot >= 0 else one + other - dot / other.square().sum() * other
        optimizer.step()


def maml() -> None:
    """Inner steps on copies of the weights, by torch.func; the outer step on the model."""
    net = model()
    optimizer = sgd(net, 0.001)
    for _ in range(STEPS // 2):
        optimizer.zero_grad()
        for _ in range(2):
            weights = dict(net.named_parameters())
            x, y = batch()
            inner = F.mse_loss(torch.func.functional_call(net, weights, (x,)), y)
            gradients = torch.autograd.grad(inner, tuple(weights.values()), create_graph=True)
            adapted = {name: p - 0.01 * g for (name, p), g in zip(weights.items(), gradients)}
            x, y = batch()
            (F.mse_loss(torch.func.functional_call(net, adapted, (x,)), y) / 2).backward()
        optimizer.step()


def reptile() -> None:
    """Inner training of a copy with an optimizer of its own; the model moves towards the copy."""
    net = model()
    for _ in range(5):
        copied = copy.deepcopy(net)
        optimizer = sgd(copied)
        for _ in range(5):
            optimizer.zero_grad()
            loss_of(copied).backward()
            optimizer.step()
        with torch.no_grad():
            for parameter, moved in zip(net.parameters(), copied.parameters()):
                parameter.lerp_(moved, 0.5)


def elastic_weight_consolidation() -> None:
    """Before training, a loop of backwards measures the importance of each weight; training then adds a penalty."""
    net = model()
    importance = [torch.zeros_like(p) for p in net.parameters()]
    for _ in range(10):
        net.zero_grad()
        loss_of(net).backward()
        for total, parameter in zip(importance, net.parameters()):
            total += parameter.grad.square() / 10
    anchors = [p.detach().clone() for p in net.parameters()]
    optimizer = sgd(net)
    for _ in range(STEPS):
        optimizer.zero_grad()
        terms = zip(importance, net.parameters(), anchors)
        penalty = torch.stack([(i * (p - a).square()).sum() for i, p, a in terms]).sum()
        (loss_of(net) + penalty).backward()
        optimizer.step()


def two_optimizers_of_one_model() -> None:
    net = model()
    optimizers = [sgd(net[0]), torch.optim.Adam(net[2].parameters(), lr=0.001)]
    for _ in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(net).backward()
        for optimizer in optimizers:
            optimizer.step()


def optimizers_in_turns() -> None:
    """Even steps train the first layer, odd ones the last; `zero_grad` of the model clears all."""
    net = model()
    optimizers = [sgd(net[0]), sgd(net[2])]
    for step in range(STEPS):
        net.zero_grad()
        loss_of(net).backward()
        optimizers[step % 2].step()


def scaler_with_clipping() -> None:
    net = model()
    optimizer, scaler = sgd(net), torch.amp.GradScaler("cpu", init_scale=2.0**20)
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(net)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def disabled_scaler() -> None:
    """A scaler that is there for other devices multiplies by nothing, so clipping needs no `unscale_`."""
    net = model()
    optimizer, scaler = sgd(net), torch.amp.GradScaler("cpu", enabled=False)
    for _ in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(loss_of(net)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def first_backward_with_anomaly_detection() -> None:
    net = model()
    optimizer = sgd(net)
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autograd.set_detect_anomaly(step < 2):
            loss_of(net).backward()
        optimizer.step()


def evaluations() -> None:
    """Under `no_grad` and under `inference_mode`, in eval mode, each after ten steps."""
    net = model(dropout=True)
    optimizer = sgd(net)
    for epoch in range(4):
        net.train()
        for _ in range(10):
            optimizer.zero_grad()
            loss_of(net).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad() if epoch % 2 else torch.inference_mode():
            for _ in range(4):
                loss_of(net)


def attacks_in_evaluation() -> None:
    """Every ten steps an attack on the inputs, with five backwards in eval mode."""
    net = model(dropout=True)
    optimizer = sgd(net)
    for _ in range(4):
        net.train()
        for _ in range(10):
            optimizer.zero_grad()
            loss_of(net).backward()
            optimizer.step()
        net.eval()
        inputs, targets = batch()
        for _ in range(5):
            inputs = inputs.detach().requires_grad_(True)
            F.mse_loss(net(inputs), targets).backward()
            inputs = inputs + 0.1 * inputs.grad.sign()
        optimizer.zero_grad()


def attacks_in_each_step() -> None:
    """The attack is made in eval mode, the step in train mode."""
    net = model(dropout=True)
    optimizer = sgd(net)
    for _ in range(STEPS):
        inputs, targets = batch()
        inputs.requires_grad_(True)
        net.eval()
        (slope,) = torch.autograd.grad(F.mse_loss(net(inputs), targets), inputs)
        net.train()
        optimizer.zero_grad()
        F.mse_loss(net((inputs + 0.1 * slope.sign()).detach()), targets).backward()
        optimizer.step()


def recurrent_state_detached() -> None:
    cell, head = nn.GRUCell(8, 16), nn.Linear(16, 1)
    net = nn.ModuleList([cell, head])
    optimizer = sgd(net)
    state = torch.zeros(8, 16)
    for _ in range(STEPS):
        inputs, targets = batch()
        state = cell(inputs, state.detach())
        optimizer.zero_grad()
        F.mse_loss(head(state), targets).backward()
        optimizer.step()


LOOPS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        grad_set_to_none, grad_zeroed_in_place, grad_data_zeroed_in_place, module_zero_grad,
        cleared_before_backward, manual_sgd, manual_sgd_by_autograd_grad, skips_bad_batches,
        skips_batches_without_backward, warm_up_from_zero, cosine_to_zero, one_group_waits, lbfgs, sam,
        pcgrad, maml, reptile, elastic_weight_consolidation, two_optimizers_of_one_model, optimizers_in_turns,
        scaler_with_clipping, disabled_scaler, evaluations, attacks_in_evaluation, attacks_in_each_step,
        recurrent_state_detached, first_backward_with_anomaly_detection,
    )
}  # fmt: skip
