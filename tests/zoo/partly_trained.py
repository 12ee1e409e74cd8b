"""Specimens of which autograd trains only a part: frozen, unused, adapted, cut off by no_grad."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from zoo.attention import WIDTH, Block
from zoo.dense import small_mlp
from zoo.specimen import Specimen, floats, mean_square, seeded


class UnusedBranch(nn.Module):
    """`unused` is trainable and never called: its gradients stay None."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = small_mlp(), small_mlp()

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.used(x))


@seeded
def unused_branch() -> Specimen:
    return Specimen("unused_branch", UnusedBranch(), floats(6, 8), mean_square)


class FrozenEncoderWithPrompt(nn.Module):
    """As in CoOp: the gradient of `prompt` flows through the frozen encoder; `image_encoder` is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = nn.Parameter(0.02 * torch.randn(4, WIDTH))
        self.class_tokens = nn.Parameter(torch.randn(3, 1, WIDTH), requires_grad=False)
        self.text_encoder = nn.Sequential(Block(), Block())
        self.image_encoder = nn.Sequential(nn.Linear(8, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.text_encoder.requires_grad_(False)
        self.image_encoder.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        prompts = torch.cat([self.prompt.expand(3, -1, -1), self.class_tokens], dim=1)
        texts = self.text_encoder(prompts)[:, -1]
        return cast("Tensor", self.image_encoder(images) @ texts.T)


@seeded
def frozen_encoder_with_prompt() -> Specimen:
    return Specimen("frozen_encoder_with_prompt", FrozenEncoderWithPrompt(), floats(6, 8), mean_square)


class LoRALinear(nn.Module):
    """base(x) + x Aᵀ Bᵀ with B = 0 at first, so that A's first gradient is exactly zero (Hu et al., 2021)."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.base(x) + x @ self.lora_a.T @ self.lora_b.T)


@seeded
def lora() -> Specimen:
    model = nn.Sequential(LoRALinear(nn.Linear(8, 16)), nn.ReLU(), LoRALinear(nn.Linear(16, 4)))
    return Specimen("lora", model, floats(6, 8), mean_square)


class PrefixAndHead(nn.Module):
    """A frozen backbone whose output goes to a trainable head: nothing in front of it needs a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.head = small_mlp().requires_grad_(False), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.head(self.backbone(x)))


@seeded
def frozen_prefix() -> Specimen:
    return Specimen("frozen_prefix", PrefixAndHead(), floats(6, 8), mean_square)


class UnderNoGrad(PrefixAndHead):
    """The backbone's parameters require a gradient, and are used under no_grad: they get none."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone.requires_grad_(True)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            features = self.backbone(x)
        return cast("Tensor", self.head(features))


@seeded
def under_no_grad() -> Specimen:
    return Specimen("under_no_grad", UnderNoGrad(), floats(6, 8), mean_square)
