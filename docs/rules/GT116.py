"""GT116: the keys of a checkpoint begin with `module.`, and none fits. With the argument `fixed` this is removed."""

import sys

import torch
from torch import nn

torch.manual_seed(0)


def encoder() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())


checkpoint = nn.DataParallel(encoder()).state_dict()
if "fixed" in sys.argv:
    checkpoint = {key.removeprefix("module."): value for key, value in checkpoint.items()}
model = nn.Sequential(encoder(), nn.Linear(32, 4))
model[0].load_state_dict(checkpoint, strict=False)
model[0].requires_grad_(False)
optimizer = torch.optim.AdamW(model[1].parameters(), lr=0.01)

for _ in range(40):
    inputs = torch.randn(32, 16)
    loss = nn.functional.cross_entropy(model(inputs), inputs[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
