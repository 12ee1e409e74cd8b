"""Training by Lightning's Trainer, as small and as silent as it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Automatic(lightning.LightningModule):
    """Trains `net` with the loss of (net, number of the batch); `notes.step` hears of each step as it will be applied."""

    def __init__(self, net: nn.Module, loss: Callable[[nn.Module, int], Tensor]) -> None:
        super().__init__()
        self.net = net
        self.loss = loss
        self.notes: Any = None
        self.losses: list[Tensor] = []
        """Of the micro-steps of the current step."""

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        self.losses.append(self.loss(self.net, batch_idx))
        return self.losses[-1]

    def on_after_backward(self) -> None:
        if self.notes is not None:
            self.notes.backward()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        """Called with the gradients accumulated, whether or not they are to be clipped."""
        if self.notes is None:
            return
        before = self.notes.total()
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
        by_norm = gradient_clip_val is not None and gradient_clip_algorithm == "norm"
        # Lightning divides each loss by the number of micro-steps before it calls backward.
        losses = [loss.detach() / self.trainer.accumulate_grad_batches for loss in self.losses]
        self.notes.step(losses, before_clipping=before if by_norm else None)
        self.losses.clear()


def fit(module: lightning.LightningModule, *, steps: int, accumulate: int = 1, clip: str | None = None) -> None:
    """Train for `steps` optimizer steps of `accumulate` micro-steps; `clip` is "norm", "value" or None.

    A module with manual optimization accumulates by itself.
    """
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_steps=steps,
        accumulate_grad_batches=accumulate if module.automatic_optimization else 1,
        gradient_clip_val=1e-2 if clip is not None else None, gradient_clip_algorithm=clip,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, DataLoader(TensorDataset(torch.zeros(steps * accumulate, 1))))
