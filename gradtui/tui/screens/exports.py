"""Writes what the user sees or has done to files, and notifies the user where they are. UI thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.app import App

from gradtui.tui.screens.action_context import ActionContext

if TYPE_CHECKING:
    from gradtui.tui.plots.table import Table


def export_plots(app: App[Any], context: ActionContext, tables: list[tuple[str, Table]]) -> None:
    """Write the data of the plots and a picture of the screen."""
    from gradtui.tui.plots.export_files import export

    script = context.state.started.script if context.state.started is not None else ""
    said = export(tables, lambda: app.export_screenshot(title=f"gradtui {script}".strip()), context.write_file)
    app.notify(said.text, severity="information" if said.written else "warning", timeout=15, markup=False)


def export_schedule(app: App[Any], context: ActionContext) -> None:
    """Write the changes made to the run."""
    app.notify(_save_schedule(context), timeout=15, markup=False)


def _save_schedule(context: ActionContext) -> str:
    if not context.state.intervention_count:
        return "Nothing has been done to this run yet: there is nothing to write down."
    if context.save_schedule is None:
        return "There is no place to write files to."
    try:
        return context.save_schedule(context.state)
    except OSError as error:
        return f"It could not be written: {error.strerror or error}"
