"""Specimens with attention: a tiny GPT with tied embedding, PyTorch's own encoder, checkpointed blocks."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from zoo.specimen import Specimen, floats, mean_square, seeded, tokens

VOCABULARY, CONTEXT, WIDTH, HEADS = 17, 8, 16, 2


class Block(nn.Module):
    """A pre-norm transformer block, causal or not."""

    def __init__(self, width: int = WIDTH, heads: int = HEADS, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.proj(attended.transpose(1, 2).flatten(2))
        return cast("Tensor", x + self.mlp(self.ln_2(x)))


class TinyGPT(nn.Module):
    """Returns (logits, loss), as many language models do; the output layer is the token embedding."""

    def __init__(
        self,
        vocabulary: int = VOCABULARY,
        context: int = CONTEXT,
        width: int = WIDTH,
        heads: int = HEADS,
        layers: int = 2,
    ) -> None:
        super().__init__()
        self.tok_emb, self.pos_emb = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.tok_emb.weight

    def forward(self, index: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        x = self.tok_emb(index) + self.pos_emb(torch.arange(index.shape[1], device=index.device))
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


@seeded
def tied_gpt() -> Specimen:
    batch = tokens(3, CONTEXT, below=VOCABULARY, count=2)
    return Specimen("tied_gpt", TinyGPT(), batch, lambda out: cast("Tensor", out[1]))


@seeded
def transformer_encoder() -> Specimen:
    """PyTorch's own, which has a fast path of its own in eval mode that calls no submodule."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, dim_feedforward=32, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
    return Specimen("transformer_encoder", model, floats(3, CONTEXT, WIDTH), mean_square)


class Checkpointed(nn.Module):
    """Each block's forward is entered a second time, during backward, and left by an exception of torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block(), Block()])

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


@seeded
def checkpointed() -> Specimen:
    return Specimen("checkpointed", Checkpointed(), floats(3, CONTEXT, 8), mean_square)
