"""Training loops as people write them, in torch only. `LOOPS` maps a name to a function (model, batch, loss, steps).

Each runs `steps` steps over `batch(0)`, `batch(1)`, …; a second model, an optimizer, a scheduler: it makes them itself.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from zoo import Batch, Loss

from helpers.examples import nightly

Loop = Callable[[nn.Module, Batch, Loss, int], None]

MICRO_BATCHES = 4
"""Backward passes per step in the accumulating loops."""

INF_STEP = 1
"""The step, counted from 0, whose loss is infinite in `grad_scaler`; the scaler skips it."""


def plain(model: nn.Module, batch: Batch, loss: Loss, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        loss(model(*batch(step))).backward()
        optimizer.step()


def momentum(model: nn.Module, batch: Batch, loss: Loss, steps: int) -> None:
    """With weight decay: the two that move a parameter whose gradient is zero."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=0.01)
    for step in range(steps):
        loss(model(*batch(step))).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def adamw(model: nn.Module, batch: Batch, loss: Loss, steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        output = model(*batch(step))
        value = loss(output)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


def accumulation(model: nn.Module, batch: Batch, loss: Loss, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer.zero_grad()
    for micro_step in range(steps * MICRO_BATCHES):
        value = loss(model(*batch(micro_step))) / MICRO_BATCHES
        value.backward()
        if (micro_step + 1) % MICRO_BATCHES == 0:
            optimizer.step()
            optimizer.zero_grad()


def accumulation_clipped(model: nn.Module, batch: Batch, loss: Loss, steps: int) -> None:
    """Accumulation with gradient clipping and a learning-rate schedule."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    for step in range(steps):
        optimizer.zero_grad()
        for micro_batch in range(MICRO_BATCHES):
            value = loss(model(*batch(step * MICRO_BATCHES + micro_batch))) / MICRO_BATCHES
            value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)
        optimizer.step()
        scheduler.step()


def gan(model: nn.Module, batch: Batch, loss: Loss, steps: int) -> None:
    """`model` generates; a discriminator made here tells its outputs from noise. Two models, two optimizers."""
    features = model(*batch(0))[0].numel()
    discriminator = nn.Sequential(nn.Flatten(), nn.Linear(features, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    optimizer_g = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    for step in range(steps):
        fake: Tensor = model(*batch(step))
        real = torch.randn_like(fake)
        optimizer_d.zero_grad()
        on_real, on_fake = discriminator(real), discriminator(fake.detach())
        nn.functional.binary_cross_entropy_with_logits(on_real, torch.ones_like(on_real)).backward()
        nn.functional.binary_cross_entropy_with_logits(on_fake, torch.zeros_like(on_fake)).backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        judged = discriminator(fake)
        nn.functional.binary_cross_entropy_with_logits(judged, torch.ones_like(judged)).backward()
        optimizer_g.step()


def lbfgs(model: nn.Module, batch: Batch, loss: Loss, steps: int) -> None:
    """Several forward and backward passes within one optimizer step."""
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    for step in range(steps):
        inputs = batch(step)

        def closure() -> Tensor:
            optimizer.zero_grad()
            value = loss(model(*inputs))  # noqa: B023  the optimizer calls it within this iteration only
            value.backward()
            return value

        optimizer.step(closure)


def autocast_bf16(model: nn.Module, batch: Batch, loss: Loss, steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(model(*batch(step)))
        value.backward()
        optimizer.step()


def grad_scaler(model: nn.Module, batch: Batch, loss: Loss, steps: int) -> None:
    """With unscaling and clipping; the loss of step `INF_STEP` is infinite, so that the scaler skips that step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(steps):
        optimizer.zero_grad()
        value = loss(model(*batch(step)))
        if step == INF_STEP:
            value = value * float("inf")
        scaler.scale(value).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        scaler.step(optimizer)
        scaler.update()


def gradient_penalty(model: nn.Module, batch: Batch, loss: Loss, steps: int) -> None:
    """`model` is a critic of one floating-point input, with a penalty on its input gradient as in WGAN-GP."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        (x,) = batch(step)
        x.requires_grad_(True)
        output = model(x)
        (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
        optimizer.zero_grad()
        (loss(output) + 10 * penalty).backward()
        optimizer.step()


def step_in_backward(model: nn.Module, batch: Batch, loss: Loss, steps: int) -> None:
    """One optimizer per parameter, stepped by a hook while backward still runs; no gradient outlives backward."""
    trained: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in trained}

    def step_and_clear(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    handles = [p.register_post_accumulate_grad_hook(step_and_clear) for p in trained]
    for step in range(steps):
        loss(model(*batch(step))).backward()
    for handle in handles:
        handle.remove()


def with_evaluation(model: nn.Module, batch: Batch, loss: Loss, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        model.train()
        optimizer.zero_grad()
        loss(model(*batch(step))).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            loss(model(*batch(1000 + step)))


LOOPS: dict[str, Loop] = {
    loop.__name__: loop
    for loop in (
        plain,
        momentum,
        adamw,
        accumulation,
        accumulation_clipped,
        gan,
        lbfgs,
        autocast_bf16,
        grad_scaler,
        gradient_penalty,
        step_in_backward,
        with_evaluation,
    )
}


def _has_bf16_lstm() -> bool:
    """Whether torch has an LSTM in bfloat16 for this processor: on one with no more than AVX2 it raises (torch 2.13)."""
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            nn.LSTM(5, 8)(torch.zeros(2, 1, 5))
    except RuntimeError:
        return False
    return True


UNSUITED: dict[str, frozenset[str]] = {
    "momentum": frozenset({"sparse_embedding"}),
    "adamw": frozenset({"sparse_embedding"}),
    "accumulation_clipped": frozenset({"sparse_embedding"}),
    "gan": frozenset({"tied_gpt", "sparse_embedding", "bf16", "lstm"}),
    "autocast_bf16": frozenset({"sparse_embedding"} if _has_bf16_lstm() else {"sparse_embedding", "lstm"}),
    "grad_scaler": frozenset({"sparse_embedding", "complex_parameter"}),
    "gradient_penalty": frozenset(
        {"tied_gpt", "sparse_embedding", "under_no_grad", "checkpointed", "transformer_encoder", "lstm"}
    ),
    "step_in_backward": frozenset({"lazy"}),
}
"""Per loop, the specimens of the zoo that plain torch refuses in it, or whose output the loop does not expect."""


def with_specimens(*names: str) -> list[tuple[str, str]]:
    """Return each loop with one of these specimens that it suits, or nightly with all of them."""
    pairs: list[tuple[str, str]] = []
    for at, loop in enumerate(LOOPS):
        suited = [name for name in names if name not in UNSUITED.get(loop, ())]
        pairs += [(loop, name) for name in nightly([suited[at % len(suited)]], suited)]
    return pairs
