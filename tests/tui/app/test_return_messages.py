"""What the screen says when a return policy returns, and when it gives up."""

from __future__ import annotations

from gradtui.protocol import events as ev
from gradtui.protocol.commands import ReturnToState
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.tui.app.event_notifier import announcement
from gradtui.tui.panels.events import KINDS, entry_lines


def test_returns_and_policy_ends_are_messages() -> None:
    state = RunState()
    text = "returned to step 30: NaN in the loss of step 61, return 1 of 1; 9 tensors are equal to the bit, in 1.0 ms"
    back = ev.CommandApplied(5.0, 61, ReturnToState(0, state=1, why="NaN", random=False), text, ())
    ended = ev.ReturnsEnded(7.0, 72, "nan", 1, "NaN in the loss of step 72, after 1 return")
    for event, words, severity in (
        (back, text, "information"),
        (ended, "--return-at-nan gives up: NaN in the loss of step 72, after 1 return; ", "error"),
    ):
        apply(state, event)
        said = announcement(state, event)
        assert (said.text.startswith(words), said.severity) == (True, severity)
        entry = state.log[-1]
        assert entry.text.startswith(words)
        assert entry.kind in KINDS
        assert entry_lines(entry, 100)
