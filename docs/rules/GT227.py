"""GT227: a view makes tokens of a feature map. With the argument `fixed` a transpose does."""

import sys

import torch
from torch import Tensor, nn

torch.manual_seed(0)


class Tokens(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        batch, channels, height, width = features.shape
        if "fixed" in sys.argv:
            return features.flatten(2).transpose(1, 2)
        return features.view(batch, height * width, channels)


model = nn.Sequential(nn.Conv2d(3, 16, 4, stride=4), Tokens(), nn.LayerNorm(16), nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

for _ in range(40):
    images, classes = torch.randn(8, 3, 12, 12), torch.randint(0, 4, (8,))
    loss = nn.functional.cross_entropy(model(images).mean(1), classes)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
