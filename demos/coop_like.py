"""Prompt learning, as in CoOp (Zhou et al., 2022), on scikit-learn's handwritten digits: real, nothing to download.

    python demos/coop_like.py, or watched: gradtui demos/coop_like.py     (45 s on a CPU; uses CUDA if present)

1. A small CLIP-like pair learns from scratch, for some seconds: 500 upright images, each clear, noisy or faint, against
   captions such as "a faint photo of the digit seven", in varied wording.
2. Both are frozen; only `ctx`, the context vectors before each class name, learns, from 16 shots a class. We make it
   hard: these are other images, tilted by 25 degrees, as none was in part 1. A hand-written prompt still works, far
   above chance; the learned context works better. Held-out images serve for the printed accuracies, nothing else.
3. Under gradtui, in part 2: `text_encoder` is frozen and *passes*: the gradient of `ctx` goes through it, activations
   are kept; `image_encoder` is frozen and *off*; `ctx` *trains*. `/` finds blocks.7. `space` twice unfreezes it: its
   gradients, Adam state and norms appear. `space` twice again freezes it: it stays the same to the bit. `p` pauses.
"""

# mypy: disable-error-code="no-any-return,no-untyped-call"
from __future__ import annotations

from zlib import crc32

import torch
from scipy.ndimage import rotate  # type: ignore[import-untyped]
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

SEED, DEVICE = 1, "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, DEPTH, HEADS, EMBED = 224, 8, 4, 128  # of the text encoder; EMBED is the space that images and texts share
PRETRAIN_IMAGES, PRETRAIN_STEPS, PRETRAIN_LR, GROUPS = 500, 100, 3e-4, 4  # GROUPS: images of each caption in a step
TILT, SHOTS, N_CTX, EPOCHS, BATCH, LR = -25, 16, 24, 45, 16, 1e-3  # of part 2; TILT in degrees
LOOKS = ["clear", "noisy", "faint"]
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
CAPTIONS = ["a {} photo of the digit {}", "a {} picture of a {}", "this {} scan shows the number {}", "{} written {}"]
WORDS = ["<start>", "<end>", *LOOKS, *NAMES, *sorted({w for c in CAPTIONS for w in c.split() if w != "{}"})]


def tokenize(texts: list[str]) -> Tensor:
    rows = [torch.tensor([WORDS.index(word) for word in f"<start> {text} <end>".split()]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=WORDS.index("<end>")).to(DEVICE)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential()
        self.mlp.fc1, self.mlp.gelu, self.mlp.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class TextEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(len(WORDS), WIDTH)
        self.position = nn.Parameter(0.01 * torch.randn(N_CTX + 8, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.ln_final, self.projection = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, EMBED, bias=False)

    def forward(self, embedded: Tensor, tokens: Tensor) -> Tensor:
        x = self.ln_final(self.blocks(embedded + self.position[: embedded.shape[1]]))
        end = (tokens == WORDS.index("<end>")).int().argmax(dim=1)  # the first one: what comes after is padding
        return F.normalize(self.projection(x[torch.arange(len(x)), end]), dim=-1)


class CLIP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        convs = nn.Conv2d(1, 32, 3, padding=1), nn.GELU(), nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.GELU()
        self.image_encoder = nn.Sequential(*convs, nn.Flatten(), nn.Linear(64 * 4 * 4, EMBED))
        self.text_encoder, self.logit_scale = TextEncoder(), nn.Parameter(torch.tensor(1 / 0.07).log())

    def forward(self, images: Tensor, tokens: Tensor) -> Tensor:
        texts = self.text_encoder(self.text_encoder.token_embedding(tokens), tokens)
        return self.logit_scale.exp() * F.normalize(self.image_encoder(images), dim=-1) @ texts.T


class CoOp(nn.Module):
    def __init__(self, pair: CLIP) -> None:
        super().__init__()
        self.ctx, self.logit_scale = nn.Parameter(0.02 * torch.randn(N_CTX, WIDTH)), pair.logit_scale
        self.text_encoder, self.image_encoder = pair.text_encoder, pair.image_encoder
        self.tokens = tokenize(["a " * N_CTX + name for name in NAMES])  # each "a" holds the place of a vector of ctx

    def forward(self, images: Tensor) -> Tensor:
        start, _, name_end = self.text_encoder.token_embedding(self.tokens).split((1, N_CTX, 2), dim=1)
        texts = self.text_encoder(torch.cat([start, self.ctx.expand(len(NAMES), -1, -1), name_end], dim=1), self.tokens)
        return self.logit_scale.exp() * F.normalize(self.image_encoder(images), dim=-1) @ texts.T


torch.set_num_threads(1)  # steadier than two where cores are shared, as with the dashboard
torch.manual_seed(SEED)
images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
images = images.float().view(-1, 1, 8, 8) / 16
pair = CLIP().to(DEVICE)
optimizer: torch.optim.Optimizer = torch.optim.AdamW(pair.parameters(), lr=PRETRAIN_LR)
by_digit = (labels[:PRETRAIN_IMAGES] == torch.arange(10)[:, None]).float()
for step in range(1, PRETRAIN_STEPS + 1):
    clear = images[torch.multinomial(by_digit, GROUPS).T].to(DEVICE)
    shown = torch.cat([clear, clear + 0.35 * torch.randn_like(clear), 0.35 * clear], dim=1)  # GROUPS x captions
    tokens = tokenize([CAPTIONS[step % len(CAPTIONS)].format(look, name) for look in LOOKS for name in NAMES])
    logits = pair(shown.flatten(0, 1), tokens).unflatten(0, (GROUPS, -1))
    target = torch.arange(len(tokens), device=DEVICE).expand(GROUPS, -1)
    loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.mT, target)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"pretraining step {step}/{PRETRAIN_STEPS}  loss {loss.item():.3f}", flush=True)

pair.requires_grad_(False).zero_grad()
before = [crc32(p.detach().cpu().numpy().tobytes()) for p in pair.parameters()]
tilted = torch.tensor(rotate(images.numpy(), TILT, axes=(-2, -1), reshape=False, order=1))
rest = PRETRAIN_IMAGES + torch.randperm(len(images) - PRETRAIN_IMAGES)
shots = torch.cat([rest[labels[rest] == digit][:SHOTS] for digit in range(10)])
held_out = rest[~torch.isin(rest, shots)]
held_images, held_labels = tilted[held_out].to(DEVICE), labels[held_out].to(DEVICE)
with torch.no_grad():
    logits = pair(held_images, tokenize([f"a clear photo of the digit {name}" for name in NAMES]))
zero_shot = (logits.argmax(dim=1) == held_labels).float().mean().item()

model = CoOp(pair).to(DEVICE)
optimizer = torch.optim.Adam([model.ctx], lr=LR)
loader = DataLoader(TensorDataset(tilted[shots], labels[shots]), batch_size=BATCH, shuffle=True)
for epoch in range(1, EPOCHS + 1):
    mean = 0.0
    for shown, target in loader:
        loss = F.cross_entropy(model(shown.to(DEVICE)), target.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean += loss.item() / len(loader)
    with torch.no_grad():
        learned = (model(held_images).argmax(dim=1) == held_labels).float().mean().item()
    print(f"epoch {epoch}/{EPOCHS}  loss {mean:.3f}  accuracy {learned:.3f} (zero-shot {zero_shot:.3f})", flush=True)
print(f"held-out accuracy: zero-shot {zero_shot:.3f}, prompt-learned {learned:.3f}")
after = [crc32(p.detach().cpu().numpy().tobytes()) for p in pair.parameters()]
print(f"{sum(a == b for a, b in zip(before, after))} of the pair's {len(before)} tensors are the same, to the bit")
