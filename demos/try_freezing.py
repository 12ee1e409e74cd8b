"""A network that has learnt upright digits is trained on tilted ones: what does it cost to freeze a part of it?

    gradtui demos/try_freezing.py                                               press y on a row
    gradtui --plain --schedule demos/try_freezing.toml demos/try_freezing.py    tries three freezes at step 170

Both parts train on scikit-learn's handwritten digits. Part 2 begins at step 160. Each freeze of the schedule is tried on the
same 60 batches: that of the first layer, of the first two, and of everything but the last one.
"""

import torch
from scipy.ndimage import rotate
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(layer(*channels) for channels in ((1, 16), (16, 32), (32, 32))))
        self.head = nn.Linear(32 * 8 * 8, 10)

    def forward(self, images):
        return self.head(F.dropout(self.layers(images).flatten(1), 0.2, self.training))


def layer(channels, more):
    return nn.Sequential(nn.Conv2d(channels, more, 3, padding=1), nn.GroupNorm(4, more), nn.ReLU())


def train(images, epochs):
    loader = DataLoader(TensorDataset(images[:1280], labels[:1280]), batch_size=64, shuffle=True, drop_last=True)
    held = TensorDataset(images[1280:], labels[1280:])
    print(f"accuracy {accuracy(held):.3f}", flush=True)
    for _ in range(epochs):
        for shown, target in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(shown.unsqueeze(1)), target).backward()
            optimizer.step()
    print(f"accuracy {accuracy(held):.3f}", flush=True)


def accuracy(data):
    model.eval()
    with torch.no_grad():
        right = [(model(shown.unsqueeze(1)).argmax(1) == target) for shown, target in DataLoader(data, batch_size=64)]
    model.train()
    return torch.cat(right).float().mean()


torch.manual_seed(0)
digits = load_digits()
labels = torch.tensor(digits.target)
upright = torch.tensor(digits.images / 16, dtype=torch.float32)
tilted = torch.tensor(rotate(upright.numpy(), 40, axes=(-2, -1), reshape=False, order=1))
model = Digits()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
train(upright, 8)
train(tilted, 15)
