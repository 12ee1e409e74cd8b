"""The actions that send a command, as tables from an action's id to the function or form that makes it. UI thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gradtui.state.run_state import RunState
from gradtui.tui.requests import live_requests, requests
from gradtui.tui.requests.requests import Make, Refusal

if TYPE_CHECKING:
    from gradtui.tui.app.app import GradtuiApp

REQUESTS: dict[str, Callable[[RunState, int | None], Make | Refusal]] = {
    "toggle_trainable": requests.toggle,
    "freeze_dropping": live_requests.freeze_dropping,
    "freeze_offloading": live_requests.freeze_offloading,
    "verify_freezes": lambda state, _: live_requests.verify(state),
    "toggle_checkpointing": live_requests.checkpointing,
    "toggle_mode": live_requests.mode,
    "pause": lambda state, _: requests.pause(state),
    "pause_at_bad_step": lambda state, _: live_requests.pause_at_bad_step(state),
    "run_one_step": lambda state, _: requests.one_step(state),
    "save_snapshot": lambda state, _: requests.save_snapshot(state),
    "follow_micro_steps": lambda state, _: live_requests.micro_steps(state),
    "zero_gradients": lambda state, _: live_requests.zero_gradients(state),
    "stop_training": lambda state, _: live_requests.stop(state),
    "undo": lambda state, _: live_requests.undo(state),
}
"""Maps an action's id to the function that makes its command from the run state and the row under the cursor."""

QUESTIONS = ("run_steps", "run_to", "set_group", "save_checkpoint")
"""Ids of the actions that first ask for values. Each is the name of a function in `questions`, imported on first use."""


class LiveActions:
    """Has a method `action_x` for every x in `REQUESTS` and `QUESTIONS`. `GradtuiApp` inherits from it."""


def _requesting(name: str) -> Callable[[GradtuiApp], None]:
    def action(app: GradtuiApp) -> None:
        app.request(REQUESTS[name](app.run_state, app.dashboard.tree_view.current))

    return action


def _asking(name: str) -> Callable[[GradtuiApp], None]:
    def action(app: GradtuiApp) -> None:
        from gradtui.tui.requests import questions
        from gradtui.tui.screens.form import FormDialog

        if isinstance(app.screen, FormDialog):
            return
        ask: Callable[[RunState], questions.Question | Refusal] = getattr(questions, name)
        question = ask(app.run_state)
        if isinstance(question, Refusal):
            app.request(question)
        else:
            app.push_screen(FormDialog(question), lambda made: app.request(made) if made is not None else None)

    return action


for _name in REQUESTS:
    setattr(LiveActions, f"action_{_name}", _requesting(_name))
for _name in QUESTIONS:
    setattr(LiveActions, f"action_{_name}", _asking(_name))
