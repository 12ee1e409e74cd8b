"""GT702: the accuracy is counted sample by sample, by 4,000 reads. With the argument `fixed` one read has it."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
correct = 0

for _ in range(500):
    inputs = torch.randn(2_000, 16)
    labels = inputs[:, :4].argmax(1)
    scores = model(inputs)
    loss = nn.functional.cross_entropy(scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found = scores.argmax(1)
    if "fixed" in sys.argv:
        correct += int((found == labels).sum())
    else:
        correct += sum(one.item() == other.item() for one, other in zip(found, labels))
