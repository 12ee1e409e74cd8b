"""GT113: tied weights are two Parameters over one storage. With the argument `fixed` they are one."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
embedding, head = nn.Embedding(20, 16), nn.Linear(16, 20, bias=False)
head.weight = embedding.weight if "fixed" in sys.argv else nn.Parameter(embedding.weight.data)
model = nn.Sequential(embedding, nn.Linear(16, 16), nn.ReLU(), head)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)

for _ in range(60):
    tokens = torch.randint(20, (8,))
    loss = nn.functional.cross_entropy(model(tokens), tokens)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
