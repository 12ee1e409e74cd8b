"""GT108: inputs that require a gradient match where that costs a good part of what autograd keeps."""

from __future__ import annotations

from gradtui.protocol.events import InputGradientUnused
from gradtui.run.diagnostics.rules.gt108_unread_input_gradient import RULE
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

MIB = 1 << 20


def state_of(*sizes: int) -> RunState:
    state = RunState()
    for step, size in enumerate(sizes, 1):
        apply(state, InputGradientUnused(float(step), step, ("frozen.0", "frozen.1"), 2, size, 10 * MIB))
    return state


def test_two_sampled_steps_match() -> None:
    (match,) = RULE.check(state_of(4 * MIB, 4 * MIB))
    assert match.evidence == {"modules": 2, "bytes": 4 * MIB, "saved_bytes": 10 * MIB}
    assert match.paths == ("frozen.0", "frozen.1")
    assert match.message.endswith("it keeps 4.0 MiB of 10.0 MiB")


def test_one_sampled_step_and_little_memory_do_not_match() -> None:
    assert list(RULE.check(state_of(4 * MIB))) == []
    assert list(RULE.check(state_of(MIB // 2, MIB // 2))) == []
