"""`gradtui.watch` in a notebook: a kernel runs its cells, and the table changes while one of them trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
nbclient = pytest.importorskip("nbclient")

MODEL = """
import time
import torch
import gradtui
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
WATCH = """
watch = gradtui.watch(model, optimizer, name="net", progress=False)
watch
"""
TRAIN = """
began = time.monotonic()
for step in range(240):
    if step == 60:
        receipt = watch.freeze("0")
    optimizer.zero_grad()
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)
"""
AWAIT = """
result = await receipt
assert result.step == 60, result
assert result.effect is not None, result
assert model[0].weight.requires_grad is False
"""
REFUSED = """
refused = watch.unfreeze("2")
try:
    await refused
except TimeoutError as error:
    assert "waits for the next step" in str(error), error
optimizer.zero_grad()
model(torch.ones(4, 8)).square().mean().backward()
optimizer.step()
model(torch.ones(4, 8)).square().mean().backward()
try:
    await refused
except gradtui.NotAppliedError as error:
    assert str(error) == "cannot unfreeze 2: 2 is already trainable", error
else:
    raise AssertionError
"""
CLOSE = """
last = watch.freeze("2.bias")
watch.close()
try:
    await last
except gradtui.NotAppliedError as error:
    assert str(error) == "cannot freeze 2.bias: the run ended before the next step", error
else:
    raise AssertionError
assert (await receipt).step == 60
assert "no longer watched" in watch._repr_html_()
"""


class Client(nbclient.NotebookClient):
    """Keeps every update of a display, by the number of the cell that ran meanwhile."""

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] in ("display_data", "update_display_data"):
            self.shown.append((cell_index, msg["msg_type"], msg["content"]["data"]))
        return super().process_message(msg, cell, cell_index)


@pytest.mark.slow
def test_table_follows_training_and_receipts_can_be_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    cells = (MODEL, WATCH, TRAIN, AWAIT, REFUSED, CLOSE)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    client = Client(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    client.shown = []
    client.execute()
    first, *updates = client.shown
    assert first[:2] == (1, "display_data")
    assert {kind for _, kind, _ in updates} == {"update_display_data"}
    during = [data["text/html"] for cell, _, data in updates if cell == 2]
    assert 3 <= len(during) <= 12, "2.4 s and more of training at two updates a second, and one at the end of the cell"
    assert "<b>step 240</b>" in during[-1]
    assert "froze 0" in during[-1]
    (output,) = notebook.cells[1].outputs
    assert "<b>step 241</b> (no longer watched)" in output.data["text/html"]
    assert [each.outputs for i, each in enumerate(notebook.cells) if i != 1] == [[]] * 5, "nothing is printed"
