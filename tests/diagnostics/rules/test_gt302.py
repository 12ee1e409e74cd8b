"""GT302: a loaded checkpoint matches while it is alive."""

from __future__ import annotations

from gradtui.protocol.events import CheckpointAlive
from gradtui.run.diagnostics.rules.gt302_checkpoint_alive import RULE
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState


def test_a_checkpoint_matches_until_it_is_freed() -> None:
    state = RunState()
    assert list(RULE.check(state)) == []
    apply(state, CheckpointAlive(1.0, 3, 12, 6 << 20, "checkpoint"))
    (match,) = RULE.check(state)
    assert match.evidence == {"tensors": 12, "bytes": 6 << 20, "holder": "checkpoint"}
    assert match.message.endswith("and keep 6.0 MiB, in the global variable checkpoint")
    apply(state, CheckpointAlive(2.0, 9, 0, 0, None))
    assert list(RULE.check(state)) == []
