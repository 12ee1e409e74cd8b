"""Arguments by argparse, also such as look like options of somebody else."""

import argparse
import random
import sys

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--plain", action="store_true")
parser.add_argument("-m", "--model", default="linear")
parser.add_argument("rest", nargs="*")
arguments = parser.parse_args()
print(sys.argv, arguments, parser.prog)

# After the arguments, as scripts do that want to answer --help at once.
import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(arguments.steps):
    optimizer.zero_grad()
    loss = model(torch.randn(2, 3)).sum()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
leave(model)
