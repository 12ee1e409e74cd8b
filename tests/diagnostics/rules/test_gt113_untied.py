"""GT113: weights that were equal at first and are two tensors."""

from __future__ import annotations

from gradtui.protocol.events import WeightsUntied
from gradtui.run.diagnostics.rules.gt113_shared_or_untied import RULE
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def test_a_copy_of_an_embedding_is_a_warning() -> None:
    state = RunState()
    apply(state, WeightsUntied(1.0, 5, "embedding.weight", "head.weight", 1_600, 3))
    (match,) = RULE.check(state)
    assert match.level is Level.WARNING
    assert match.paths == ("embedding.weight", "head.weight")
    assert match.evidence == {"elements": 1600, "equal_step": 3, "different_step": 5}
    assert match.first_step == 3
    assert "head.weight and embedding.weight were equal at step 3" in match.message
    assert "(1,600 elements)" in match.message
