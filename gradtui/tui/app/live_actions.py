"""The actions that send a command, as tables from an action's id to the function or form that makes it. UI thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gradtui.tui.requests.requests import REQUESTS, Refusal, command_for

if TYPE_CHECKING:
    from gradtui.tui.app.app import GradtuiApp

QUESTIONS = ("run_steps", "run_to", "set_group", "save_checkpoint")
"""Ids of the actions that first ask for values: the keys of `questions.QUESTIONS`, which is imported on first use."""


class LiveActions:
    """Has a method `action_x` for every x in `REQUESTS` and `QUESTIONS`. `GradtuiApp` inherits from it."""


def _requesting(name: str) -> Callable[[GradtuiApp], None]:
    def action(app: GradtuiApp) -> None:
        app.request(command_for(name, app.run_state, app.dashboard.tree_view.current))

    return action


def _asking(name: str) -> Callable[[GradtuiApp], None]:
    def action(app: GradtuiApp) -> None:
        from gradtui.tui.requests import questions
        from gradtui.tui.screens.form import FormDialog

        if isinstance(app.screen, FormDialog):
            return
        question = questions.question_for(name, app.run_state)
        if isinstance(question, Refusal):
            app.request(question)
        else:
            app.push_screen(FormDialog(question), lambda made: app.request(made) if made is not None else None)

    return action


for _name in REQUESTS.keys() - {"trace_step"}:
    setattr(LiveActions, f"action_{_name}", _requesting(_name))
for _name in QUESTIONS:
    setattr(LiveActions, f"action_{_name}", _asking(_name))
