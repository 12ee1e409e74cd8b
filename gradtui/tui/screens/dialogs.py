"""Opens dialogs. Each is imported when it first opens, so that the first paint does not wait for the import. UI thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.app import App

from gradtui.tui.requests.requests import Refusal, follow_gradient, refusal_of
from gradtui.tui.screens.action_context import ActionContext

if TYPE_CHECKING:
    from gradtui.tui.requests.freeze_choice import Choice


def open_question(app: App[Any], context: ActionContext, name: str) -> None:
    """Open the form of a question in `QUESTIONS`, and send the command that it makes."""
    from gradtui.tui.requests.questions import question_for
    from gradtui.tui.screens.form import FormDialog

    if isinstance(app.screen, FormDialog):
        return
    question = question_for(name, context.state)
    if isinstance(question, Refusal):
        context.send(question)
    else:
        app.push_screen(FormDialog(question), lambda made: context.send(made) if made is not None else None)


def open_freeze(app: App[Any], context: ActionContext) -> None:
    """Open the dialog that chooses what trains, and send the command that it makes."""
    from gradtui.tui.screens.freeze import FreezeDialog

    def send(chosen: Choice | None) -> None:
        if chosen is not None:
            context.send(refusal_of("model", context.state) or chosen.command)

    refusal = refusal_of("model", context.state)
    if refusal is not None:
        context.send(refusal)
    else:
        app.push_screen(FreezeDialog(context.state), send)


def open_explanation(app: App[Any], context: ActionContext, row: int | None) -> None:
    """Open the explanation of a row, if there is one, and request the gradient path that it shows."""
    from gradtui.tui.screens.detail import DetailDialog

    if row is None:
        return
    follow = follow_gradient(context.state, row)
    if follow is not None:
        context.send(follow)
    app.push_screen(DetailDialog(context.state, row))


def open_device(app: App[Any], context: ActionContext) -> None:
    """Open the dialog that divides up the memory of the device."""
    from gradtui.tui.screens.device import DeviceDialog

    app.push_screen(DeviceDialog(context.state, colour=not app.no_color))


def open_step(app: App[Any], context: ActionContext) -> None:
    """Request the memory profile of the next step and open the dialog that shows it; after the run, the newest there is."""
    from gradtui.tui.screens.step import StepDialog

    ended, known = context.state.ended is not None, context.state.traced is not None
    if not ended or not known:
        context.request("trace_step")
    if not ended or known:
        app.push_screen(StepDialog(context.state, context.pictures))
