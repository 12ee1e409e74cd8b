"""GT112: all parameters are frozen, and only the embeddings require a gradient. With the argument `fixed` an adapter trains."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
embedding = nn.Embedding(20, 16)
model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 20))
embedding.requires_grad_(False)
model.requires_grad_(False)
if "fixed" in sys.argv:
    model[2].requires_grad_(True)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)

for _ in range(60):
    tokens = torch.randint(20, (8,))
    # What enable_input_require_grads() of transformers does: without it backward() would raise an error.
    embedded = embedding(tokens).requires_grad_(True)
    loss = nn.functional.cross_entropy(model(embedded), tokens)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
