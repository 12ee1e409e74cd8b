"""Gradient accumulation: once right, and the three ways in which it usually goes wrong, on the same data.

    right           loss / n, step and zero_grad after every n-th micro-batch
    steps too early the test is `i % n == 0`: the first step has seen one micro-batch instead of n, and the last n - 1 are lost
    not divided     the losses of n micro-batches are added up: gradients are n times too large
    not cleared     zero_grad is missing: every step still has the gradients of all steps before it

Prints the norm of the gradient at each optimizer step. Under gradtui the panel "Loss and gradient norm" draws the four one
after the other; the header counts micro-steps and steps apart.
"""

import torch
from torch import nn
from torch.nn import functional as F

n = 4  # micro-batches per step
micro_batch = 16
steps = 12
learning_rate = 0.002


def data():
    torch.manual_seed(1)
    x = torch.randn(n * steps, micro_batch, 20)
    return x, (x[..., :10].sum(dim=-1) > 0).long()


def new_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 2))


def train(first=n - 1, divisor=n, clears=True):
    """Norms at the steps, which come after the micro-batches first, first + n, first + 2 n, ..."""
    model, norms = new_model(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    for i, (x, y) in enumerate(zip(*data())):
        loss = F.cross_entropy(model(x), y) / divisor
        loss.backward()
        if i % n == first:
            norms.append(torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item())
            optimizer.step()
            if clears:
                optimizer.zero_grad()
    return norms


curves = {
    "right": train(),
    "steps too early": train(first=0),
    "not divided": train(divisor=1),
    "not cleared": train(clears=False),
}
print("norm of the gradient at step " + "".join(f"{step:>7}" for step in range(1, steps + 1)))
for name, norms in curves.items():
    print(f"  {name:<27}" + "".join(f"{norm:7.2f}" for norm in norms))
first = {name: norms[0] / curves["right"][0] for name, norms in curves.items()}
last = {name: norms[-1] / curves["right"][-1] for name, norms in curves.items()}
print(f"not divided: {first['not divided']:.1f} times the right norm at the first step")
print(f"not cleared: {last['not cleared']:.1f} times the right norm at the last step")
print(f"steps too early: {first['steps too early']:.1f} times the right norm at the first step, from one micro-batch")
