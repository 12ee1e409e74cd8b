"""A part of the package."""

from torch import nn


def build() -> nn.Module:
    """The model."""
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
