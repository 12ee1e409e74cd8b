"""`%load_ext gradtui` and `%%gradtui`, in a shell of IPython without a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gradtui.probe.session import active_probe

pytest.importorskip("IPython")

MODEL = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TRAIN = """
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 4)).square().mean().backward()
    optimizer.step()
"""


@pytest.fixture
def shell() -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell

    made = InteractiveShell()
    made.history_manager.enabled = False
    made.run_cell("%load_ext gradtui")
    yield made
    made.history_manager.end_session()


def test_a_cell_is_watched_while_it_runs(shell: Any) -> None:
    assert shell.run_cell(MODEL).success
    result = shell.run_cell(f"%%gradtui watch\n{TRAIN}model.weight.shape")
    assert result.success
    assert tuple(result.result) == (2, 4)
    assert active_probe() is None
    summary = shell.user_ns["watch"].summary()
    assert summary["steps"] == 3
    assert [each["path"] for each in summary["parameters"]] == ["weight", "bias"]
    # The same cell without the magic ends at the same weights.
    weights = shell.user_ns["model"].weight.detach().clone()
    assert shell.run_cell(MODEL + TRAIN).success
    assert (shell.user_ns["model"].weight == weights).all()


def test_error_of_cell_is_cell_s(shell: Any) -> None:
    result = shell.run_cell("%%gradtui\nx = 1\n1 / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert shell.user_ns["x"] == 1
    assert active_probe() is None
    assert isinstance(shell.run_cell("%%gradtui\nx = (").error_in_exec, SyntaxError)
    assert active_probe() is None


def test_a_name_must_be_one(shell: Any) -> None:
    assert "no name of a variable" in str(shell.run_cell("%%gradtui 1x\npass").error_in_exec)
