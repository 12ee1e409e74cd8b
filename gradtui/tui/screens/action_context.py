"""What the actions of the dashboard and of the plots screen share: the run, the dialogs they open, the files they write.

Each dialog is imported when it first opens, so that the first paint does not wait for the import. UI thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from textual.app import App

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import Command
from gradtui.protocol.forecasts import ForecastAsked
from gradtui.protocol.tries import ChangeTried
from gradtui.protocol.vocabulary import HeldStep
from gradtui.run.state.findings import Finding
from gradtui.run.state.forecasts.plans import PlanOffered
from gradtui.run.state.memory.reconciliation import reconcile
from gradtui.run.state.run_state import RunState
from gradtui.system.atomic_file import WriteFile
from gradtui.tui.charts.pictures import Pictures
from gradtui.tui.plots.rows import WatchedParameters
from gradtui.tui.plots.table import Table, export
from gradtui.tui.requests.requests import Make, Refusal, command_for, follow_gradient, refusal_of
from gradtui.tui.widgets import StatusMessage

if TYPE_CHECKING:
    from gradtui.tui.requests import freeze_choice, held_step


class Planner(Protocol):
    """Answers questions; the answers arrive as events."""

    def ask(self, asked: ForecastAsked) -> None:
        """Answer one question soon."""

    def ask_all(self, asked: Sequence[ForecastAsked]) -> None:
        """Answer a list of questions instead of the list before."""


class Schedules(Protocol):
    """Writes files with schedules. The functions return a sentence that says where, and raise OSError."""

    def save(self, state: RunState) -> str:
        """Write what was done to the run."""
        ...

    def save_plan(self, state: RunState, commands: Sequence[Command]) -> str:
        """Write commands with which a run begins."""
        ...


@dataclass(frozen=True)
class ActionContext:
    """The run behind the screens.

    Args:
        state: the state of the run.
        send: sends a command, or tells the user why there is none.
        pictures: draws the curves.
        watched: the parameters that the probe measures in detail for the plots.
        say: shows a message that is among the events already; `App.notify` adds it to them.
        write_file: creates a file beside the run's log; None if there is no directory for files.
        schedules: writes schedules; None if there is no directory for files.
        planner: forecasts; None if there is no planner.
    """

    state: RunState
    send: Callable[[Make | Refusal], None]
    pictures: Pictures
    watched: WatchedParameters
    say: Callable[[StatusMessage], None]
    write_file: WriteFile | None = None
    schedules: Schedules | None = None
    planner: Planner | None = None

    def ask_planner(self, asked: ForecastAsked) -> None:
        """Ask for an exact forecast, which arrives as an event."""
        if self.planner is not None:
            self.planner.ask(asked)

    def ask_all(self, asked: Sequence[ForecastAsked]) -> None:
        """Ask for several forecasts instead of those asked for so before."""
        if self.planner is not None:
            self.planner.ask_all(asked)

    def request(self, name: str, row: int | None = None) -> None:
        """Send the command of a request in `REQUESTS`, or tell the user why there is none."""
        self.send(command_for(name, self.state, row))


def open_question(app: App[Any], context: ActionContext, name: str, row: int | None = None) -> None:
    """Open the form of a question, about the row under the cursor or about none, and send the command that it makes."""
    from gradtui.tui.requests.questions import question_for
    from gradtui.tui.screens.form import FormDialog

    if isinstance(app.screen, FormDialog):
        return
    if name == "try_change" and context.state.tries.asks is not None:
        open_try(app, context, context.state.tries.asks)
        return
    question = question_for(name, context.state, row)
    if isinstance(question, Refusal):
        context.send(question)
    else:
        app.push_screen(FormDialog(question), lambda made: context.send(made) if made is not None else None)


def open_try(app: App[Any], context: ActionContext, tried: ChangeTried) -> None:
    """Open the dialog that asks with which side of a try the run continues, and send the answer."""
    from gradtui.tui.screens.tries import TryDialog

    app.push_screen(TryDialog(tried), lambda made: context.send(made) if made is not None else None)


def open_breakpoints(app: App[Any], context: ActionContext) -> None:
    """Open the dialog that sets and clears breakpoints; before an optimizer's step, the one that asks what to do with it."""
    from gradtui.tui.screens.breakpoints import BreakpointDialog

    refusal = refusal_of("run", context.state)
    if refusal is not None:
        context.send(refusal)
    elif context.state.held_step is not None:
        open_held_step(app, context, context.state.held_step)
    else:
        app.push_screen(BreakpointDialog(context.state), lambda made: context.send(made) if made is not None else None)


def open_kept_states(app: App[Any], context: ActionContext) -> None:
    """Open the list of kept states, and send the command that the user chooses."""
    from gradtui.tui.screens.kept_states import KeptStatesDialog

    refusal = refusal_of("model", context.state)
    if refusal is not None:
        context.send(refusal)
    else:
        app.push_screen(KeptStatesDialog(context.state), lambda made: context.send(made) if made is not None else None)


def open_undo(app: App[Any], context: ActionContext) -> None:
    """Undo the latest change or, where a state was kept before it, ask whether to return to that."""
    from gradtui.tui.requests.undo import undo_choice
    from gradtui.tui.screens.undo import UndoDialog

    choice = undo_choice(context.state) if refusal_of("run", context.state) is None else None
    if choice is None:
        context.request("undo")
    else:
        app.push_screen(UndoDialog(choice), lambda made: context.send(made) if made is not None else None)


def open_held_step(app: App[Any], context: ActionContext, held: HeldStep) -> None:
    """Open the dialog that asks what to do with the optimizer's step before which the run is held, and send the answer."""
    from gradtui.tui.screens.held_step import HeldStepDialog

    def send(chosen: held_step.Choice | None) -> None:
        for make in chosen.commands if chosen is not None else ():
            context.send(make)

    app.push_screen(HeldStepDialog(context.state, held), send)


def open_freeze(app: App[Any], context: ActionContext) -> None:
    """Open the dialog that chooses what trains, and send the command that it makes."""
    from gradtui.tui.screens.freeze import FreezeDialog

    def send(chosen: freeze_choice.Choice | freeze_choice.RowsChoice | None) -> None:
        if chosen is not None:
            context.send(refusal_of("model", context.state) or chosen.command)

    refusal = refusal_of("model", context.state)
    if refusal is not None:
        context.send(refusal)
    else:
        app.push_screen(FreezeDialog(context.state), send)


def open_plans(app: App[Any], context: ActionContext) -> None:
    """Open the list of plans, and apply the one that the user chooses. A schedule that begins with it is written too."""
    from gradtui.tui.screens.plans import PlansDialog

    def apply(chosen: PlanOffered | Make | None) -> None:
        if chosen is None:
            return
        if not isinstance(chosen, PlanOffered):
            context.send(refusal_of("model", context.state) or chosen)
            return
        for make in chosen.commands:
            context.send(refusal_of("model", context.state) or make)
        if context.schedules is not None:
            try:
                text = context.schedules.save_plan(context.state, [make(0) for make in chosen.commands])
            except OSError as error:
                text = f"The plan could not be written as a schedule: {error.strerror or error}"
            app.notify(text, timeout=15)

    refusal = refusal_of("model", context.state)
    if refusal is not None:
        context.send(refusal)
    else:
        app.push_screen(PlansDialog(context.state, context.ask_all), apply)


def open_explanation(app: App[Any], context: ActionContext, row: int | None) -> None:
    """Open the explanation of a row, if there is one, and request the gradient path that it shows."""
    from gradtui.tui.screens.detail_dialogs import DetailDialog

    if row is None:
        return
    follow = follow_gradient(context.state, row)
    if follow is not None:
        context.send(follow)
    app.push_screen(DetailDialog(context.state, row))


def open_findings_list(app: App[Any], context: ActionContext, go_to: Callable[[int | None], None]) -> None:
    """Open the list of findings; `go_to` gets the row that the user wants to go to."""
    from gradtui.tui.screens.findings import FindingListDialog

    app.push_screen(FindingListDialog(context.state), go_to)


def open_finding(app: App[Any], context: ActionContext, finding: Finding, go_to: Callable[[int | None], None]) -> None:
    """Open the page of a finding; `go_to` gets the row that the user wants to go to."""
    from gradtui.tui.screens.findings import FindingDialog

    app.push_screen(FindingDialog(context.state, finding), go_to)


def open_memory(app: App[Any], context: ActionContext) -> None:
    """Open the dialog that divides up the memory of the device; without a device, that of the newest profiled step."""
    from gradtui.tui.screens.detail_dialogs import DeviceDialog, StepDialog

    if reconcile(context.state.device) is not None:
        app.push_screen(DeviceDialog(context.state, colour=not app.no_color))
    else:
        app.push_screen(StepDialog(context.state, context.pictures, is_requested=False))


def open_step(app: App[Any], context: ActionContext) -> None:
    """Request the memory profile of the next step and open the dialog that shows it; after the run, the newest there is."""
    from gradtui.tui.screens.detail_dialogs import StepDialog

    ended, known = context.state.ended is not None, context.state.step_profile is not None
    is_paused = context.state.paused and context.state.held_step is None
    if not ended or not known:
        context.request("trace_step")
    if not ended or known:
        app.push_screen(StepDialog(context.state, context.pictures, is_requested=not ended, runs_step=is_paused))


def open_end(app: App[Any], context: ActionContext) -> None:
    """Open the dialog at the end of the run."""
    from gradtui.tui.screens.end import EndDialog

    app.push_screen(EndDialog(context))


def export_plots(app: App[Any], context: ActionContext, tables: list[tuple[str, Table]]) -> None:
    """Write the data of the plots and a picture of the screen."""
    script = context.state.started.script if context.state.started is not None else ""
    text, is_written = export(
        tables, lambda: app.export_screenshot(title=f"gradtui {script}".strip()), context.write_file
    )
    app.notify(text, severity="information" if is_written else "warning", timeout=15)


def export_schedule(app: App[Any], context: ActionContext) -> None:
    """Write the changes made to the run."""
    app.notify(_save_schedule(context), timeout=15)


def _save_schedule(context: ActionContext) -> str:
    if not context.state.intervention_count:
        return "Nothing has been done to this run yet: there is nothing to write down."
    if context.schedules is None:
        return "There is no place to write files to."
    try:
        return context.schedules.save(context.state)
    except OSError as error:
        return f"It could not be written: {error.strerror or error}"


DIALOGS: dict[str, Callable[[App[Any], ActionContext], None]] = {
    "freeze": open_freeze,
    "breakpoints": open_breakpoints,
    "kept_states": open_kept_states,
    "plans": open_plans,
    "trace_step": open_step,
    "undo": open_undo,
}
"""By the id of the action: what opens its dialog."""
