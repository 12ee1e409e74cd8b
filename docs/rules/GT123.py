"""GT123: LoRA is added to a layer, and the layer is not frozen. With the argument `fixed` it is."""

import sys

import torch
from torch import nn

torch.manual_seed(0)


class WithLora(nn.Module):
    """A linear layer plus a change of rank 2."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.randn(2, base.in_features) / 4)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the layer and the change compute."""
        return self.base(x) + x @ self.lora_a.T @ self.lora_b.T


model = nn.Sequential(WithLora(nn.Linear(16, 32)), nn.Tanh(), nn.Linear(32, 1))
if "fixed" in sys.argv:
    model[0].base.requires_grad_(False)
optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.001)

for _ in range(40):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
