"""GT105: a frozen teacher runs in train mode. With the argument `fixed` it is in eval mode."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 1))
teacher.requires_grad_(False)
if "fixed" in sys.argv:
    teacher.eval()
student = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(student.parameters(), lr=0.01)

for _ in range(60):
    inputs = torch.randn(8, 16)
    with torch.no_grad():
        targets = teacher(inputs)
    loss = nn.functional.mse_loss(student(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
