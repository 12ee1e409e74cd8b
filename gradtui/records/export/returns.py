"""The returns to kept states, as the summary has them. Pure."""

from __future__ import annotations

from gradtui.protocol.summary_changes import Return
from gradtui.run.state.run_state import RunState
from gradtui.run.text.kept_states import return_text


def returns(state: RunState) -> tuple[Return, ...]:
    """Return the newest returns, the oldest of these first."""
    return tuple(
        Return(
            step=each.made.step,
            to_step=each.made.to_step,
            state=each.made.number,
            name=(each.kept.name or None) if each.kept is not None else None,
            text=return_text(each),
            why=each.made.why or None,
            complete=not each.made.differing,
        )
        for each in state.kept.returns
    )
