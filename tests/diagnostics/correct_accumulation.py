"""Correct loops with several backwards to a step. `ACCUMULATION` maps a name to a function without arguments."""

from __future__ import annotations

from collections.abc import Callable

import torch
from correct_loops import STEPS, batch, loss_of, model, sgd
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset


def uneven_last_window() -> None:
    """Ten batches an epoch, four to a step: the last window has two, and is stepped."""
    net = model()
    optimizer = sgd(net)
    inputs, targets = batch(80)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=8)
    for _ in range(8):
        for index, (x, y) in enumerate(loader):
            (F.mse_loss(net(x), y) / 4).backward()
            if (index + 1) % 4 == 0 or index + 1 == len(loader):
                optimizer.step()
                optimizer.zero_grad()


def accumulation_that_grows() -> None:
    """One backward a step for ten steps, then two, then four."""
    net = model()
    optimizer = sgd(net)
    for step in range(STEPS):
        length = 1 if step < 10 else 2 if step < 20 else 4
        optimizer.zero_grad()
        for _ in range(length):
            (loss_of(net) / length).backward()
        optimizer.step()


def accumulation_weighted_by_tokens() -> None:
    """Each loss is a sum over its tokens, divided by the number of tokens of the window."""
    net = model()
    optimizer = sgd(net)
    for _ in range(STEPS):
        windows = [batch(size) for size in (3, 5, 8, 2)]
        tokens = sum(len(x) for x, _ in windows)
        optimizer.zero_grad()
        for x, y in windows:
            (F.mse_loss(net(x), y, reduction="sum") / tokens).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()


def accumulation_by_a_trainer() -> None:
    """As transformers: a sum over targets by the targets of the window, which accelerate divides by 1."""
    net = model()
    optimizer = sgd(net)
    for _ in range(STEPS):
        windows = [batch(8)[0] for _ in range(4)]
        optimizer.zero_grad()
        for x in windows:
            outputs = net(x)
            targets = torch.zeros(len(x), dtype=torch.long)
            (F.cross_entropy(outputs, targets, reduction="sum") / 32 / 1).backward()
        optimizer.step()


def accumulation_with_gradients_divided() -> None:
    """The gradients are divided before the step, not the loss before backward."""
    net = model()
    optimizer = sgd(net)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(4):
            loss_of(net).backward()
        for parameter in net.parameters():
            assert parameter.grad is not None
            parameter.grad /= 4
        optimizer.step()


def two_losses_with_retained_graph() -> None:
    net = model()
    optimizer = sgd(net)
    for _ in range(STEPS):
        inputs, targets = batch()
        outputs = net(inputs)
        optimizer.zero_grad()
        F.mse_loss(outputs, targets).backward(retain_graph=True)
        (0.1 * outputs.abs().mean()).backward()
        optimizer.step()


def delayed_optimizer() -> None:
    """The second optimizer steps every second step, on the gradients of both."""
    net = model()
    fast, slow = sgd(net[2]), sgd(net[0])
    for step in range(STEPS):
        (loss_of(net) / 2).backward()
        fast.step()
        fast.zero_grad()
        if step % 2:
            slow.step()
            slow.zero_grad()


def losses_of_two_loaders() -> None:
    """A labelled and an unlabelled batch for each step, and a backward of each loss."""
    net = model()
    optimizer = sgd(net)
    inputs, targets = batch(8 * STEPS)
    labelled = DataLoader(TensorDataset(inputs, targets), batch_size=8)
    unlabelled = DataLoader(TensorDataset(torch.randn(8 * STEPS, 8)), batch_size=8)
    for (x, y), (z,) in zip(labelled, unlabelled):
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        F.mse_loss(net(z), net(z + 0.01).detach()).backward()
        optimizer.step()


def skips_bad_batches_while_accumulating() -> None:
    """A loss that is not finite discards its window, before its backward."""
    net = model()
    optimizer = sgd(net)
    done = 0
    for index in range(4 * STEPS):
        loss = loss_of(net) / 4
        if index % 11 == 5:
            optimizer.zero_grad()
            done = 0
            continue
        loss.backward()
        done += 1
        if done == 4:
            optimizer.step()
            optimizer.zero_grad()
            done = 0


def skips_bad_steps_while_accumulating() -> None:
    """A gradient norm that is too large discards the whole window."""
    net = model()
    optimizer = sgd(net)
    for step in range(STEPS):
        for _ in range(4):
            (loss_of(net) / 4).backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        if step % 7 != 5 and norm.isfinite():
            optimizer.step()
        optimizer.zero_grad()


ACCUMULATION: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        uneven_last_window, accumulation_that_grows, accumulation_weighted_by_tokens,
        accumulation_by_a_trainer, accumulation_with_gradients_divided, two_losses_with_retained_graph, delayed_optimizer,
        losses_of_two_loaders, skips_bad_batches_while_accumulating, skips_bad_steps_while_accumulating,
    )
}  # fmt: skip
