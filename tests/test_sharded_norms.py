"""Two processes with fully_shard: the viewer combines the norms of their parts to those of the whole, without a collective."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.ranks import outcomes_of_ranks, state_of_ranks
from helpers.side_by_side import write
from torch import distributed

from gradtui.run.explanation.details import rank_norms
from gradtui.run.state.norms.shown_norms import shown_norms
from gradtui.run.text.rank_norms import rank_norms_words

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"),
]

SCRIPT = """
    import json
    import sys
    import torch
    from torch import distributed, nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    # The bias of the last layer has three elements: one rank has two of them.
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    mesh = init_device_mesh("cpu", (2,))
    for layer in (net[0], net[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(distributed.get_rank())
    norms = []
    for step in range(8):
        optimizer.zero_grad()
        net(torch.randn(4, 8, generator=data)).square().mean().backward()
        norms.append([each.grad.full_tensor().norm().item() for each in net.parameters()])
        optimizer.step()
    print(json.dumps(norms))
    distributed.destroy_process_group()
    sys.stdout.flush()
"""


def test_norms_shown_are_those_of_whole_gradients(tmp_path: Path) -> None:
    first, second = outcomes_of_ranks(write(tmp_path / "train.py", SCRIPT), budget=1_000.0)
    state = state_of_ranks([first.events, second.events])
    shown = shown_norms(state)
    assert not shown.is_part
    expected = dict(enumerate(json.loads(first.output.splitlines()[-1]), 1))
    assert len(shown.history.steps) > 3
    for step, row in zip(shown.history.steps, shown.history.rows):
        assert row == pytest.approx(expected[step], rel=1e-5)
    # The process alone knows the norm of its part only.
    assert state.tree.norms is not None
    assert all((own or 0) < whole for own, whole in zip(state.tree.norms, expected[shown.step or 0]))
    held = [
        [info.local_count for info in record.parameters] for record in (state.job.ranks.values() if state.job else ())
    ]
    assert held == [[64, 8, 32, 2], [64, 8, 16, 1]]
    assert "combined from 2 parts" in (rank_norms_words(rank_norms(state.job, 3)) or "")
