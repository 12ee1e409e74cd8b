"""Inference only."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
model = nn.Sequential(nn.Linear(4, 8), nn.Softmax(-1)).eval()
with torch.inference_mode():
    print(model(torch.randn(3, 4)))
leave(model)
