"""A vocabulary of 8,000 tokens gets 64 new ones: only their rows of the embedding are to train.

    python demos/new_tokens.py                                          the old rows move, too
    gradtui --plain --schedule demos/new_tokens.toml demos/new_tokens.py    they keep their bits

The embedding is also the weight of the output layer, so each token has a gradient in each step.
"""

import torch
from torch import nn
from torch.nn import functional as F

old, new, width = 8_000, 64, 32


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(old + new, width)
        self.body = nn.Linear(width, width)

    def forward(self, tokens):
        hidden = torch.tanh(self.body(self.embed(tokens)))
        return hidden @ self.embed.weight.T


torch.manual_seed(0)
model = Words()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
before = model.embed.weight.detach().clone()
for _ in range(60):
    tokens = torch.randint(old + new, (8, 17))
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
moved = (model.embed.weight != before).any(1)
print(f"rows that moved: {moved[:old].sum():,} of {old:,} old ones, {moved[old:].sum()} of {new} new ones")
