"""With torch 2.4 what a graph keeps cannot be read: it is unknown, and not zero."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from watched import watched

from gradtui.probe.sampling import sampled_step
from gradtui.protocol.events import SavedBytesMeasured


def test_unreadable_is_not_reported_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_step, "SAVED_IS_READABLE", False)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert not seen.all(SavedBytesMeasured)
    assert set(seen.letters().values()) == {"T"}
