"""Two processes with gloo: ranks that diverge silently are found, equal ones are not, and looking for it changes no bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.ranks import outcomes_of_ranks, run_ranks, state_of_ranks
from helpers.side_by_side import write
from torch import distributed

from gradtui.protocol import events as ev
from gradtui.run.state.findings import Level

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"),
]

UNFROZEN_AT = 20
SCRIPT = f"""
    import hashlib
    import os
    import sys
    import torch
    from torch import distributed, nn
    from torch.nn.parallel import DistributedDataParallel

    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    net[0].weight.requires_grad_(False)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    torch.manual_seed(1 + distributed.get_rank())
    for step in range(1, 71):
        if step == {UNFROZEN_AT} and "unfreeze" in sys.argv:
            # The wrapper does not know of it: each rank applies its own gradient.
            net[0].weight.requires_grad_(True)
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    digest = hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in net.parameters())).hexdigest()
    print(digest, torch.rand(1).item())
    distributed.destroy_process_group()
    # Freeing what belonged to the group may wait for ever.
    sys.stdout.flush()
    if "plain" in sys.argv:
        os._exit(0)
"""


def test_parameter_unfrozen_after_wrapping_is_found_with_steps(tmp_path: Path) -> None:
    script = write(tmp_path / "train.py", SCRIPT)
    streams = [each.events for each in outcomes_of_ranks(script, "unfreeze")]
    checked = [{event.step for event in stream if isinstance(event, ev.ReplicasMeasured)} for stream in streams]
    assert checked[0] & checked[1] >= {1, 16, 32}
    state = state_of_ranks(streams)
    assert state.job is not None
    (divergence,) = state.job.divergences.values()
    assert (divergence.kind, divergence.names, divergence.ranks) == ("checksums", ("module.0.weight",), (1,))
    assert (divergence.equal_step, divergence.step) == (16, 32)
    assert divergence.step - UNFROZEN_AT <= 32
    # One finding, whose cause the rank itself has seen.
    (finding,) = (each for each in state.findings if each.is_open and each.level is not Level.NOTE)
    assert (finding.rule, finding.explains, finding.paths) == ("GT109", ("GT604",), ("module.0.weight",))
    assert "since a step from 17 to 32" in finding.message


def test_equal_ranks_agree_with_bits_of_plain(tmp_path: Path) -> None:
    script = write(tmp_path / "train.py", SCRIPT)
    outcomes = outcomes_of_ranks(script)
    state = state_of_ranks([each.events for each in outcomes])
    assert state.job is not None
    assert state.job.divergences == {}
    assert state.job.compared_step >= 32
    assert not [each for each in state.findings if each.rule.startswith("GT6")]
    digests = run_ranks([[str(script), "plain"]] * 2, tmp_path)
    assert digests == [each.output for each in outcomes]
    first, second = (text.split()[0] for text in digests)
    assert first == second
