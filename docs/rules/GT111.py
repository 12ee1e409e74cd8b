"""GT111: adapters are inside reentrant checkpoints whose input requires no gradient. With the argument `fixed` they are not
reentrant.
"""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """A frozen layer with a low-rank adapter."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16).requires_grad_(False)
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)

    def forward(self, x):
        return (self.layer(x) + self.up(self.down(x))).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16).requires_grad_(False)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 20)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant="fixed" not in sys.argv)
        return self.head(x)


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.001)

for _ in range(60):
    tokens = torch.randint(20, (8,))
    loss = nn.functional.cross_entropy(model(tokens), tokens)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
