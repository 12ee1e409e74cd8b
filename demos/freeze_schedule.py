"""Freezing a layer for three epochs, the right way and the usual one: fc2 holds still to the bit, or it does not.

    python demos/freeze_schedule.py            fc2 is frozen for three epochs and released at the fourth
    python demos/freeze_schedule.py --naive    the same with requires_grad = False and nothing else

The optimizer has stepped before (a warm-up, as after a resumed checkpoint), so Adam holds moments of fc2, and gradients are
cleared to zero, not to None. To Adam a gradient of zero is a gradient: it goes on along its moments, and the naive freeze
drifts. Without a gradient it leaves the parameter out, so the right way clears `.grad` to None as well.

Under gradtui the naive run marks fc2 as *moved!*, and the events (without a screen: stderr) name it. Nor does
the script need a schedule of its own: with --train-all it has none. Freeze fc2 by a key, unfreeze it, and at the end gradtui
says how to do the same again. What the script does by itself is, written by hand, demos/freeze_schedule.toml:

    gradtui --schedule demos/freeze_schedule.toml demos/freeze_schedule.py --train-all
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F

epochs, frozen_epochs, steps = 6, 3, 1000
warm_up_steps = 100
naive, train_all = "--naive" in sys.argv, "--train-all" in sys.argv

torch.manual_seed(0)
model = nn.Sequential()
model.fc1 = nn.Linear(4, 3)
model.fc2 = nn.Linear(3, 3)  # 12 parameters of 73
model.fc3 = nn.Linear(3, 4)
model.fc4 = nn.Linear(4, 4)
model.fc5 = nn.Linear(4, 2)
x = torch.randn(200, 4)
y = (x[:, 0] - x[:, 1] + torch.randn(200) > 0).long()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)


def train(steps):
    for _ in range(steps):
        batch = torch.randint(len(x), (32,))
        loss = F.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
    return loss.item()


def weights():
    return torch.cat([parameter.detach().flatten() for parameter in model.fc2.parameters()])


train(warm_up_steps)
optimizer.zero_grad(set_to_none=False)
start = weights()
for epoch in range(1, epochs + 1):
    freezes = epoch <= frozen_epochs
    for parameter in model.fc2.parameters() if not train_all else []:
        parameter.requires_grad_(not freezes)
        if freezes and not naive:
            parameter.grad = None
    loss = train(steps)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    treated = "trained" if model.fc2.weight.requires_grad else "frozen"
    drift = (weights() - start).abs().max().item()
    moved = "unchanged to the bit" if torch.equal(weights(), start) else f"moved by {drift:.2e}"
    print(f"epoch {epoch}: {trainable} trainable parameters, fc2 {treated}, {moved}, loss {loss:.3f}")
