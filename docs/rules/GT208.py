"""GT208: bfloat16 weights get updates that are too small for them. With the argument `fixed` the weights are float32."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
if "fixed" not in sys.argv:
    model.bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0)

for _ in range(60):
    inputs = torch.randn(8, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model(inputs.to(model[0].weight.dtype)).float()
    loss = nn.functional.mse_loss(outputs, inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
